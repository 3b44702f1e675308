// Draws on a canvas or writes SVG through the same few calls, so that an exported picture matches the screen.

const FONT = "ui-monospace, 'SF Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace";

/** Colors by theme. The eight hues follow Okabe and Ito, are safe for color-blind readers, and are mixed into the background. */
const OKABE_ITO = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7a6fc9"];
const THEMES = {
  light: {
    paper: "#ffffff", ink: "#1c2430", soft: "#5b6675", rule: "#c9d0d9", empty: "#eef1f4",
    accent: "#c2185b", conflict: "#9c2a00", thread: "#1c2430", strength: 0.42, least: 0.16,
  },
  dark: {
    paper: "#171c24", ink: "#e8ecf1", soft: "#9aa6b5", rule: "#3a4453", empty: "#222a35",
    accent: "#ff5c9a", conflict: "#ff8a5c", thread: "#f4f6f9", strength: 0.52, least: 0.24,
  },
};
let palette = THEMES.light;

function mixed(one, other, share) {
  const channels = [one, other].map((color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)));
  const sum = channels[0].map((channel, i) => Math.round(channel + (channels[1][i] - channel) * share));
  return `#${sum.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

const tints = new Map();

/** Return one of eight hues, `shade` of `shades` steps towards the background. */
function hue(index, shade = 0, shades = 1) {
  const key = `${palette.paper}${mod(index, 8)}/${shade}/${shades}`;
  if (!tints.has(key)) {
    const { strength, least } = palette;
    const share = strength - ((strength - least) * shade) / Math.max(1, shades);
    tints.set(key, mixed(palette.paper, OKABE_ITO[mod(index, 8)], share));
  }
  return tints.get(key);
}

class CanvasPainter {
  constructor(context) {
    this.context = context;
  }

  rect(x, y, width, height, { fill, stroke, line = 1, dash } = {}) {
    const { context } = this;
    if (fill) {
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.setLineDash(dash || []);
      context.strokeRect(x, y, width, height);
    }
  }

  text(x, y, content, { size = 11, align = "start", fill = palette.ink, bold = false } = {}) {
    const { context } = this;
    context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    context.textAlign = align === "middle" ? "center" : align;
    context.textBaseline = "middle";
    context.fillStyle = fill;
    context.fillText(content, x, y);
  }

  line(x1, y1, x2, y2, { stroke = palette.rule, line = 1, dash } = {}) {
    const { context } = this;
    context.strokeStyle = stroke;
    context.lineWidth = line;
    context.setLineDash(dash || []);
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
  }
}

const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const short = (value) => String(Number(value.toFixed(2)));

class SvgPainter {
  constructor() {
    this.parts = [];
  }

  rect(x, y, width, height, { fill, stroke, line = 1, dash } = {}) {
    const outline = stroke ? ` stroke="${stroke}" stroke-width="${line}"` : "";
    const dashed = dash ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    const place = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
    this.parts.push(`<rect ${place} fill="${fill || "none"}"${outline}${dashed}/>`);
  }

  text(x, y, content, { size = 11, align = "start", fill = palette.ink, bold = false } = {}) {
    const place = `x="${short(x)}" y="${short(y + size * 0.35)}" font-size="${size}" text-anchor="${align}"`;
    this.parts.push(`<text ${place} fill="${fill}"${bold ? ' font-weight="600"' : ""}>${escaped(content)}</text>`);
  }

  line(x1, y1, x2, y2, { stroke = palette.rule, line = 1, dash } = {}) {
    const dashed = dash ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    const place = `x1="${short(x1)}" y1="${short(y1)}" x2="${short(x2)}" y2="${short(y2)}"`;
    this.parts.push(`<line ${place} stroke="${stroke}" stroke-width="${line}"${dashed}/>`);
  }

  document(width, height, title) {
    const size = `width="${short(width)}" height="${short(height)}" viewBox="0 0 ${short(width)} ${short(height)}"`;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escaped(FONT)}">`,
      `<title>${escaped(title)}</title>`,
      `<rect width="100%" height="100%" fill="${palette.paper}"/>`,
      ...this.parts,
      "</svg>",
      "",
    ].join("\n");
  }
}

/** Draw the followed element in the accent color, at least 5 pixels large, with an outline. */
function lit(painter, x, y, width, height) {
  const room = Math.max(0, 5 - Math.min(width, height)) / 2;
  painter.rect(x - room, y - room, width + 2 * room, height + 2 * room, { fill: palette.accent });
  painter.rect(x - room - 1, y - room - 1, width + 2 * room + 2, height + 2 * room + 2, { stroke: palette.paper });
}

const framed = (painter, x, y, width, height, line = 2) =>
  painter.rect(x, y, width, height, { stroke: palette.accent, line });

const marked = (painter, x, y, width, height) =>
  painter.rect(x + 0.5, y + 0.5, width - 1, height - 1, { stroke: palette.thread, line: 1 });

/** Hatch a rectangle, so that bank conflicts are not shown by color alone. */
function hatched(painter, x, y, width, height) {
  painter.rect(x, y, width, height, { fill: mixed(palette.paper, palette.conflict, 0.35), stroke: palette.conflict });
  for (let at = 4; at < width + height; at += 6) {
    const [x1, y1] = [x + Math.min(at, width), y + Math.max(0, at - width)];
    const [x2, y2] = [x + Math.max(0, at - height), y + Math.min(at, height)];
    painter.line(x1, y1, x2, y2, { stroke: palette.conflict });
  }
}
