package rackfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// pathHeaders is how much larger than its path MTU the packets of a link can be: the headers of the longest
// packet over IPv6, and its ICRC.
const pathHeaders = 104

// pathMTUs are the path MTUs that a rack file may ask for. A link holds at least the smallest.
var pathMTUs = []int{1024, 2048, 4096}

// parseMTU reads the MTU of links. It refuses what is meant as a path MTU.
func parseMTU(s string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case err == nil && slices.Contains(append([]int{256, 512}, pathMTUs...), n):
		return 0, fmt.Errorf("%d is a path MTU, and mtu is the link's, with all headers; write pathMtu: %d, or mtu: %d", n, max(n, pathMTUs[0]), linkFor(n))
	case err != nil:
		if _, lerr := strconv.Atoi(s[:max(0, len(s)-1)]); lerr == nil {
			return 0, fmt.Errorf("%q is no whole number; write the bytes, like 9000", s)
		}
	}
	return number(minMTU, maxMTU)(s)
}

// meantKeys are words of other files for keys of rack files.
var meantKeys = map[string]string{
	"topology": "hosts", "nodes": "hosts", "rate": "bitsPerSecond", "bandwidth": "bitsPerSecond", "percent": "probability", "loss": "probability",
	"host": "link", "port": "link", "interface": "link", "type": "kind", "direction": "dir", "duration": "for", "ram": "memory", "size": "memory",
	"mtus": "mtu", "networks": "subnet", "leafs": "leaves", "leaf": "leaves", "spine": "spines", "network": "subnet",
}

// meantWords are words of other tools for values of rack files.
var meantWords = map[string]string{
	"client": "compute", "host": "compute", "server": "memory", "storage": "memory", "meta": "metadata", "master": "metadata",
	"bridge": "forward", "dc": "dcqcn", "yes": "on", "true": "on", "no": "off", "false": "off",
}

// linkFor returns the smallest MTU of a link with a path MTU.
func linkFor(path int) int { return max(minMTU, path+pathHeaders) }

func parsePathMTU(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || !slices.Contains(pathMTUs, n) {
		return 0, fmt.Errorf("%.40q is no path MTU of a link; use one of %v", s, pathMTUs)
	}
	return n, nil
}

// mtuKeys are the keys mtu and pathMtu of a file.
type mtuKeys struct {
	at, pathAt ast.Node // their values; nil if a key is missing
	path       int      // the value of pathMtu; 0 if it is missing
}

// linkMTU returns the links' MTU: that of the file, or what the path MTU needs.
func (k *mtuKeys) linkMTU(link int) (int, error) {
	switch need := linkFor(k.path); {
	case k.path == 0:
	case k.at == nil:
		return need, nil
	case link < need:
		return link, fmt.Errorf("a path MTU of %d needs links of %d bytes or more: leave mtu out, or write mtu: %d", k.path, need, need)
	case slices.ContainsFunc(pathMTUs, func(p int) bool { return p > k.path && link >= linkFor(p) }):
		return link, errors.New("links of this mtu have a larger path MTU: leave mtu out")
	}
	return link, nil
}

// PathMTU returns the largest path MTU of RDMA that links of an MTU hold, in bytes.
func PathMTU(link int) int {
	for _, path := range slices.Backward(pathMTUs) {
		if link >= linkFor(path) {
			return path
		}
	}
	return pathMTUs[0] // the smallest MTU of a link holds it
}
