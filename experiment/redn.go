package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Values of RedN.Kind: the loads. Way and N are further fields of RedN.
const (
	ChainVerb      = "verb"      // one request of kind Way
	ChainOrder     = "order"     // N no-ops in the ordering mode Way (the paper's figure 8)
	ChainRate      = "rate"      // WRITEs, with Way "MAX" those, by as many rings as there are clients, at once
	ChainConstruct = "construct" // rate of the construct that Way names, such as a conditional
	ChainLookup    = "lookup"    // lookups in a hash table
	ChainList      = "list"      // walks of a list of 8 nodes, with the key in the first N
	ChainGets      = "gets"      // GETs of a reader of the store nictable beside N writers
	ChainCrash     = "crash"     // GETs of nictable while its process ends and restarts
)

// Values of RedN.Way for loads that get a value from a server: how the value is found and sent. An
// unrolled program has new work requests for each GET; a recycled one is a loop, which executes the
// same work requests again.
const (
	WayIdeal      = "ideal"      // one READ of the value, whose address the client knows
	WayNIC        = "nic"        // an unrolled program of the server's NIC; in a list, it visits all nodes
	WaySequential = "sequential" // as WayNIC, with the key in the second bucket of two
	WayParallel   = "parallel"   // as WaySequential, with one queue for each bucket
	WayRecycled   = "recycled"   // a recycled program; in a list, it ends at the node with the key
	WayBreak      = "break"      // only for a list: an unrolled program that ends at the node with the key
	WayReads      = "reads"      // the client READs
	WayPolling    = "polling"    // the server's process answers; it polls
	WayEvents     = "events"     // the server's process answers; it sleeps until an event
)

// RedN is a load of programs made of work requests, or of one of their baselines. In the simulator
// the switch between the hosts takes no time (cost.Model.BackToBack).
type RedN struct {
	Kind, Way string
	// Bytes is the length of a value. N is the number that the comment of the kind names. Depth is
	// the number of requests that a client has in flight; 0 means 1, and with a larger number the
	// load measures rates. Clients is the number of clients; 0 means 1.
	Bytes, N, Depth, Clients int
	// Trip is the time that the client's program takes for each round trip. Serve is that of the
	// server's process for each request. Wake is the time from an event until the process runs.
	Trip, Serve, Wake time.Duration
	// Few makes a client that measures times make a quarter of its requests.
	Few bool
	// OnNIC puts the program's work requests and constants into the memory of the NIC.
	OnNIC bool
	// Held makes a construct's conditional request hold the operand, as if a receive had put it there. Otherwise
	// the construct copies it from memory.
	Held bool
	// Cost is the cost model of the simulator; "" means that of the platform.
	Cost string
}

// RedNResult is the outcome of RedN. Fields that do not apply to its kind are zero.
type RedNResult struct {
	// Mean, Median and P99 describe the times of requests.
	Mean, Median, P99 time.Duration
	// Rate is in requests a second. Entries is the number of send ring entries (work requests of a
	// program) that the server's NIC executed for each request.
	Rate, Entries float64
	// Copies, Atomics and Controls count the requests of a construct, as Table 2 of the paper does. Controls are
	// WAIT and ENABLE.
	Copies, Atomics, Controls int
	// Steps has, for each quarter of a second, the percentage of the GETs that had an answer.
	Steps []float64
}

// Times sets the statistics from the times of requests, which it sorts.
func (r *RedNResult) Times(took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	r.Mean = sum / time.Duration(len(took))
	r.Median, r.P99 = took[len(took)/2], took[min(len(took)-1, len(took)*99/100)]
}

// typical returns the time of a typical request: the mean in the simulator, and the median on a
// rack, where other processes delay some requests by milliseconds.
func (r *RedNResult) typical(p Platform) time.Duration {
	if p.On() == OnRack {
		return r.Median
	}
	return r.Mean
}

func (l RedN) label() string {
	where := ""
	if l.OnNIC {
		where = " in the NIC's memory"
	}
	if l.Cost != "" {
		where += " with " + l.Cost
	}
	return fmt.Sprintf("RedN %s %s%s: values of %d bytes, n %d, %d in flight, %d clients, %v a round trip", l.Kind, l.Way, where, l.Bytes, l.N, max(1, l.Depth), max(1, l.Clients), l.Trip)
}

func (l RedN) effort() float64 { return 1 + float64(l.Bytes)/4096 + float64(l.Depth*l.Clients) }

func (l RedN) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.RedN(ctx, l)
	return outcome{chain: &res}, err
}
