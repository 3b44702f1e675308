"""Rules for one operand: its layout in shared memory, the copies there and to registers, and the stages."""
