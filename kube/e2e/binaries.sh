#!/bin/sh
# Builds the Kubernetes programs that e2e/kube runs, once, into a cache folder, from the Go module k8s.io/kubernetes.
# usage: binaries.sh [check]     check: only says (by the exit status) whether the cache is complete.
# RDMALAB_KUBE_CACHE is the cache folder (default ~/.cache/rdmalab/kube); one folder a version is made in it.
# A cold build takes about 600 processor seconds and 5 GB of Go's own caches; a warm one takes nothing.
set -eu
version=v1.34.4
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy"
cache=${RDMALAB_KUBE_CACHE:-$HOME/.cache/rdmalab/kube}
bin=$cache/$version
complete=1
for p in $programs; do [ -x "$bin/$p" ] || complete=0; done
if [ $complete = 1 ]; then echo "$bin"; exit 0; fi
if [ "${1:-}" = check ]; then exit 1; fi

work=$(mktemp -d "${TMPDIR:-/tmp}/rdmalab-kube.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$bin"
cd "$work"
echo "building Kubernetes $version once into $bin (about 600 processor seconds)" >&2
GOWORK=off GOFLAGS=-mod=mod go mod download k8s.io/kubernetes@$version
release=$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/$version.mod
# Kubernetes' own go.mod names its staging modules as v0.0.0, replaced by folders; here each is the published release.
{
	echo "module rdmalab.invalid/kube-binaries"
	grep -E '^go ' "$release"
	echo "require k8s.io/kubernetes $version"
	grep -E 'k8s.io/.* v0.0.0$' "$release" | awk -v v="v0.${version#v1.}" '{print "replace " $1 " => " $1 " " v}'
} > go.mod
pkg=k8s.io/component-base/version
flags="-s -w -X $pkg.gitVersion=$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=$(echo $version | cut -d. -f2) -X $pkg.gitTreeState=clean"
for p in $programs; do
	[ -x "$bin/$p" ] && continue
	echo "building $p" >&2
	GOWORK=off CGO_ENABLED=0 nice go build -mod=mod -trimpath -ldflags "$flags" -o "$bin/$p.new" "k8s.io/kubernetes/cmd/$p"
	mv "$bin/$p.new" "$bin/$p"
done
echo "$bin"
