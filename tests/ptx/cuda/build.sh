#!/bin/sh
# Makes the .ptx beside each .cu; the tests read only the .ptx, so nvcc is needed only when a .cu changes.
cd "$(dirname "$0")" || exit 1
for source in *.cu; do
    arch=compute_80 version=8.0 # so that older drivers take it, too
    case $source in
        launch_control* | umma_*) arch=sm_100a version=8.6 ;;
        hopper*) arch=compute_90a version=8.6 ;;
        tensor_maps* | cluster_* | async_* | calls* | dependent* | grid_* | vector_*) arch=sm_90a version=8.6 ;;
    esac
    nvcc -arch=$arch -O3 -ptx "$source" -o "${source%.cu}.ptx" || exit 1
    sed -i "s/^\.version .*/.version $version/" "${source%.cu}.ptx"
done
