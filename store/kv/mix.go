package kv

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// operationsMeant are words of other tools for the operations of a mix.
var operationsMeant = map[string]string{
	"read": "get", "lookup": "get", "write": "put", "update": "put", "set": "put", "del": "delete", "remove": "delete", "range": "scan", "readmodifywrite": "rmw",
}

// ParseMix parses a workload that the user describes: percentages of operations, like
// get=70,put=20,insert=5,delete=5. There are also scan, and rmw, which reads a key and writes it.
func ParseMix(text string) (w Workload, err error) {
	w.Name, w.Doc = text, "a mix of operations"
	shares := map[string]*float64{
		"get": &w.Read, "put": &w.Update, "insert": &w.Insert, "delete": &w.Delete, "scan": &w.Scan, "rmw": &w.ReadModify,
	}
	const want = "want percentages of get, put, insert, delete, scan and rmw, like get=70,put=20,insert=5,delete=5"
	sum := 0.0
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		x, err := strconv.ParseFloat(strings.TrimSuffix(number, "%"), 64)
		switch {
		case shares[name] == nil:
			return w, fmt.Errorf("mix: unknown operation %.20q; %s%s", name, nearest.Meant(name, slices.Sorted(maps.Keys(shares)), operationsMeant), want)
		case seen[name]:
			return w, fmt.Errorf("mix: %s is given twice; %s", name, want)
		case err != nil || !(x >= 0 && x <= 100):
			return w, fmt.Errorf("mix: %s=%.20s is no percentage; %s", name, number, want)
		}
		seen[name], *shares[name] = true, x/100
		sum += x
	}
	if math.Abs(sum-100) > 1e-6 {
		return w, fmt.Errorf("mix: the percentages add up to %g; they must add up to 100", sum)
	}
	return w, nil
}

// maxSet is how many times set tries PUT and INSERT of a key that other clients delete and insert
// meanwhile.
const maxSet = 16

// set sets the value of a key. If keys may be absent (c.misses), it inserts a key that is absent.
func (c *runner) set(key uint64, value []byte, deadline clock.Time) (cost Cost, err error) {
	for range maxSet {
		err = c.store.Put(key, value, deadline)
		cost.Add(c.store.Last())
		if !c.misses || !errors.Is(err, ErrNotFound) {
			return cost, err
		}
		err = c.store.Insert(key, value, deadline)
		cost.Add(c.store.Last())
		if !errors.Is(err, ErrExists) {
			return cost, err
		}
		cost.Retries++ // another client has inserted the key first
	}
	return cost, err
}

// Add adds the cost of another part of the same operation.
func (c *Cost) Add(o Cost) {
	c.RTTs += o.RTTs
	c.RPCs += o.RPCs
	c.Retries += o.Retries
}
