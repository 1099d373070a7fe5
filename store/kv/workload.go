package kv

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Workload is a mix of operations with their shares, which add up to 1.
type Workload struct {
	Name                                           string
	Read, Update, Insert, Scan, ReadModify, Delete float64
	// Latest is true if the keys that were inserted last are the most popular (YCSB D).
	Latest bool
	Doc    string
}

// Workloads returns the workloads of YCSB (SoCC 2010), and w, which has only updates.
func Workloads() []Workload {
	return []Workload{
		{Name: "a", Read: 0.5, Update: 0.5, Doc: "update heavy: 50% reads, 50% updates"},
		{Name: "b", Read: 0.95, Update: 0.05, Doc: "read mostly: 95% reads, 5% updates"},
		{Name: "c", Read: 1, Doc: "read only"},
		{Name: "d", Read: 0.95, Insert: 0.05, Latest: true, Doc: "read latest: 95% reads, mostly of keys inserted last, 5% inserts"},
		{Name: "e", Scan: 0.95, Insert: 0.05, Doc: "short ranges: 95% scans of 1 to 100 keys, 5% inserts"},
		{Name: "f", Read: 0.5, ReadModify: 0.5, Doc: "read-modify-write: 50% reads, 50% reads followed by an update of the key"},
		{Name: "w", Update: 1, Doc: "100% updates"},
	}
}

// FindWorkload returns the workload with a name. If name is a number, it is the percentage of
// updates.
func FindWorkload(name string) (Workload, error) {
	all := Workloads()
	if i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == strings.ToLower(name) }); i >= 0 {
		return all[i], nil
	}
	number := strings.TrimSuffix(name, "%")
	if percent, err := strconv.ParseFloat(number, 64); err == nil && percent >= 0 && percent <= 100 {
		return Workload{Name: name, Read: 1 - percent/100, Update: percent / 100, Doc: number + "% updates"}, nil
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	if letter := strings.TrimPrefix(strings.ToLower(name), "workload"); letter != name && slices.Contains(names, letter) {
		return Workload{}, fmt.Errorf("unknown workload %q: write %s", name, letter)
	}
	return Workload{}, fmt.Errorf("unknown workload %q: want one of %s, or the percentage of updates", name, strings.Join(names, " "))
}

type Kind uint8

// Kinds of operations.
const (
	KindRead Kind = iota
	KindUpdate
	KindInsert
	KindScan
	KindReadModify
	KindDelete
	kinds
)

var kindNames = [kinds]string{"read", "update", "insert", "scan", "read-modify-write", "delete"}

func (k Kind) String() string { return kindNames[k] }

// pick chooses the kind of the next operation. x is a random number from 0 to 1.
func (w *Workload) pick(x float64) Kind {
	for i, share := range []float64{w.Read, w.Update, w.Insert, w.Scan, w.ReadModify, w.Delete} {
		if x < share {
			return Kind(i)
		}
		x -= share
	}
	return KindRead
}

// RunConfig describes what one client of a workload does.
type RunConfig struct {
	Workload Workload
	// Keys is how many keys exist at the beginning.
	Keys uint64
	// Value is the length of a value in bytes, at least MinValue. If Sizes is not nil, values have
	// these sizes, at least MinValue, and Value is the largest of them.
	Value int
	Sizes *Sizes
	// Zipf is the skew of popularity, from 0 to 1.5. Scramble spreads the popular keys of ShapeZipf
	// and ShapeHotspot over all keys. It has no effect on the other shapes.
	Zipf     float64
	Scramble bool
	// Popularity says which keys are used. Its zero value means a Zipf distribution.
	Popularity Popularity
	// Clients is the number of all clients. Client is the number of this client.
	Clients, Client int
	// Warmup is the time before operations are counted. Duration is the time during which they are
	// counted.
	Warmup, Duration time.Duration
	// Ops is the number of counted operations after which a client ends; 0 means no limit.
	Ops uint64
	// Rate is how many operations of a client become due per second, whether or not earlier ones
	// have ended (open loop). A due operation waits until the client has ended the previous one.
	// Its latency counts from the time at which it was due. 0 means that each operation is due when
	// the client's previous one has ended (closed loop).
	Rate float64
	// Pace is the factor by which Replay executes a trace faster than its recorded times; 0 means
	// that each operation starts when the client's previous one has ended. Only Replay uses it.
	Pace float64
	// Patience is the time limit of one operation; 0 means 5 s.
	Patience time.Duration
	// Verify is true if the client checks every value that it reads.
	Verify bool
	// ScanLen is the largest number of keys of a scan, at most MaxScan; 0 means 100.
	ScanLen int
	// Spans is how many operations of the client Result.Spans has: the first ones that are counted,
	// up to MaxSpans.
	Spans int `json:",omitempty"`
	// Observe, if not nil, is called with the latency of each successful operation, also during
	// Warmup.
	Observe func(took time.Duration) `json:"-"`
	// Ended, if not nil, is called after each operation, also during Warmup and after a failure,
	// and after each GET with which the client searches for the keys of earlier runs.
	Ended func() `json:"-"`
}

// MaxScan is the largest number of records of one scan.
const MaxScan = 10_000

const (
	defaultPatience = 5 * time.Second
	defaultScan     = 100
	maxZipf         = 1.5
	// Limits of RunConfig.Rate and RunConfig.Pace. Within those of Rate, the time between two
	// operations is at least a nanosecond and does not overflow.
	minRate, maxRate = 1e-3, 1e9
	minPace, maxPace = 1e-3, 1e6
)

func (c RunConfig) withDefaults() RunConfig {
	if c.Sizes != nil {
		own := *c.Sizes // a copy, because Sizes changes when this client draws a size
		c.Sizes, c.Value = &own, own.Max
	}
	c.Value = max(c.Value, MinValue)
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	c.ScanLen = cmp.Or(c.ScanLen, defaultScan)
	return c
}

func (c *RunConfig) validClient() error {
	switch {
	case c.Clients > MaxClients:
		return fmt.Errorf("workload: %d clients; want at most %d", c.Clients, MaxClients)
	case c.Clients < 1 || c.Client < 0 || c.Client >= c.Clients:
		return fmt.Errorf("workload: client %d of %d", c.Client, c.Clients)
	}
	return nil
}

// validLoad returns an error for the first field that Load cannot use.
func (c *RunConfig) validLoad() error {
	if err := c.validClient(); err != nil {
		return err
	}
	if c.Value < 0 || c.Value > maxSize {
		return fmt.Errorf("workload: values of %d bytes; want at most %d", c.Value, maxSize)
	}
	if c.Sizes != nil {
		if err := c.Sizes.check(); err != nil {
			return fmt.Errorf("workload: %w", err)
		}
	}
	return nil
}

// Validate returns an error for the first field that is not valid.
func (c *RunConfig) Validate() error {
	if err := c.validLoad(); err != nil {
		return err
	}
	switch {
	case c.ScanLen < 0 || c.ScanLen > MaxScan:
		return fmt.Errorf("workload: scans of up to %d records; want 1 to %d", c.ScanLen, MaxScan)
	case c.Keys < 1:
		return fmt.Errorf("workload: %d keys; want at least 1", c.Keys)
	case !(c.Zipf >= 0 && c.Zipf <= maxZipf):
		return fmt.Errorf("workload: Zipf parameter %g; want 0 to %g", c.Zipf, maxZipf)
	case c.Duration <= 0 && c.Ops == 0:
		return fmt.Errorf("workload: neither a duration nor a number of operations")
	case c.Rate != 0 && !(c.Rate >= minRate && c.Rate <= maxRate):
		return fmt.Errorf("workload: a rate of %g operations per second; want %g to %g, or 0 for no rate", c.Rate, minRate, maxRate)
	case c.Pace != 0 && !(c.Pace >= minPace && c.Pace <= maxPace):
		return fmt.Errorf("workload: a pace of %g; want %g to %g, or 0 for no pace", c.Pace, minPace, maxPace)
	case c.Spans < 0 || c.Spans > MaxSpans:
		return fmt.Errorf("workload: %d spans of a client; want at most %d", c.Spans, MaxSpans)
	case c.Warmup < 0 || c.Duration < 0 || c.Patience < 0:
		return fmt.Errorf("workload: a time is negative")
	}
	return c.Popularity.check()
}
