#!/bin/sh
# Builds the Kubernetes programs that the suites below kube/e2e run, once, into a cache folder, from the Go module k8s.io/kubernetes;
# and kwok, which plays nodes and Pods for the suite placement, from sigs.k8s.io/kwok.
# usage: binaries.sh [check]     check: only says (by the exit status) whether the cache is complete.
# RDMALAB_KUBE_CACHE is the cache folder (default ~/.cache/rdmalab/kube); one folder a version is made in it.
# A cold build takes about 750 processor seconds, 150 of them for kwok, and 5 GB of Go's own caches; a warm one takes nothing.
set -eu
version=v1.34.4
kwok=v0.8.0
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy"
cache=${RDMALAB_KUBE_CACHE:-$HOME/.cache/rdmalab/kube}
bin=$cache/$version
have() { for p in "$@"; do [ -x "$bin/$p" ] || return 1; done; }
if [ "${1:-}" = check ]; then have $programs "kwok-$kwok" || exit 1; echo "$bin"; exit 0; fi

work=$(mktemp -d "${TMPDIR:-/tmp}/rdmalab-kube.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$bin"
cd "$work"
if ! have "kwok-$kwok"; then
	echo "building kwok $kwok once into $bin (about 150 processor seconds)" >&2
	GOWORK=off GOFLAGS= GOBIN=$work CGO_ENABLED=0 nice go install -trimpath -ldflags "-s -w" "sigs.k8s.io/kwok/cmd/kwok@$kwok"
	mv "$work/kwok" "$bin/kwok.new"
	mv "$bin/kwok.new" "$bin/kwok-$kwok"
fi
ln -sfn "kwok-$kwok" "$bin/kwok"
if have $programs; then echo "$bin"; exit 0; fi
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
