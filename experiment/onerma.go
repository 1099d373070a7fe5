package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Kinds of OneRMA. Hosts, Load and Slots are fields of OneRMA.
const (
	SoloRamp    = "ramp"    // a flow, later a second one from the same server to another client
	SoloBeside  = "beside"  // small READs beside one large transfer
	SoloDemand  = "demand"  // Hosts clients READ from one server, each at Load; no congestion control
	SoloRandom  = "random"  // Hosts hosts that read from random others, or write to them
	SoloGets    = "gets"    // GETs of Hosts hosts with clients of the service kvcs
	SoloMixed   = "mixed"   // SoloRandom of 4 KB and 200 KB
	SoloLocal   = "local"   // a flow, later a second one of another process of the same host
	SoloSlots   = "slots"   // a client that always has Slots operations in flight
	SoloClasses = "classes" // READs by 1RMA to a host to which another one writes by RoCEv2, over one link
	SoloRekey   = "rekey"   // READs of two regions of a host, while the key of one is replaced
)

// Values of OneRMA.Way: which NICs execute the operations and, in SoloRekey, how keys are replaced
// and found.
const (
	// WaySolo is 1RMA. In SoloRekey its clients have the next key of a region before the old one is
	// refused. WayAsks is 1RMA in SoloRekey with clients that ask the owner for the next key when
	// the old one was refused.
	WaySolo = ""
	WayAsks = "asks"
	// WayDriver is 1RMA in SoloRekey, where the driver of the region's owner replaces keys, and no
	// REKEY is used.
	WayDriver = "driver"
	// WayRoCE is RoCEv2 on the same links, with one connection between two hosts.
	WayRoCE = "roce"
	// WayPFC is WayRoCE in the simulator, behind a switch whose ports pause hosts (PFC) in the place of queues
	// without a bound. Not in SoloClasses and SoloRekey.
	WayPFC = "roce-pfc"
)

// Values of OneRMA.Class: the queues of the switch in SoloClasses.
const (
	ClassShared  = "shared"  // 1RMA and RoCEv2 have one queue
	ClassWeights = "weights" // each has a queue, of the same weight
	ClassStrict  = "strict"  // each has a queue, and that of 1RMA leaves first
)

// OneRMA is a load of 1RMA NICs or, with WayRoCE, of RoCEv2 NICs. In the simulator the network is
// the testbed of the 1RMA paper: links of 100 Gbit/s, and a round trip of 5 µs.
type OneRMA struct {
	Kind, Way string
	// First is the first congestion window in operations; 0 means 1. If TotalDelay is true,
	// congestion control uses only the total delay of an operation, and not separately the delay in
	// the initiator's NIC; see executor.Config.
	First      float64
	TotalDelay bool
	// Window and Threshold are the solicitation window and the bound of waiting requests, in bytes;
	// see nic.Config. 0 selects its defaults.
	Window, Threshold int
	Jitter            time.Duration // largest random delay of each frame on a link
	// Large is the number of bytes of a large transfer of SoloBeside and, on a rack, of SoloMixed; 0
	// means that there is none.
	Large int
	// Slots is how many operations SoloSlots has in flight and, on a rack, how many large transfers
	// SoloBeside and SoloMixed have in flight.
	Slots int
	// For SoloClasses: Class says which queues there are. Marked gives the RoCEv2 NICs congestion control
	// by DCQCN. With Only, or by WayRoCE, one transport is alone.
	Class        string
	Marked, Only bool
	Write        bool // true: SoloRandom and, on a rack, SoloSlots are WRITEs; false: READs
	Hosts        int  // number of hosts or clients, as the kind says
	// Load is the load of each host or, in SoloGets, the load of the servers, as a share of the
	// line rate.
	Load float64
	Span time.Duration // how long operations are counted, in virtual time
}

// OneRMAResult is the outcome of OneRMA. Fields that do not apply to its kind are zero.
type OneRMAResult struct {
	// Ramp is the number of round trips (of 5 µs) after which the flow has 0.9 of the line rate.
	// Fair is the number of round trips, from the start of the second flow, after which the rates of
	// both are fair (OneRMAFair). 0 means not within 2,000 round trips or, on a rack, SlowLongest.
	Ramp, Fair float64
	// Goodput is the rate of the bytes of operations that have ended as OK, as a share of the line
	// rate.
	Goodput float64
	// RoCE is the rate of the bytes of WRITEs by RoCEv2 in SoloClasses, as a share of the line rate.
	RoCE float64
	// Retried is the share of operations that have failed, and so were tried again or shed.
	// Dispatch is the share of operations that have ended as DISPATCH_TIMEOUT.
	Retried, Dispatch float64
	// Median and P99 are quantiles of the time of a transfer, in round trips.
	Median, P99 float64
	// LargeMedian is the median time of the large transfers of SoloMixed; Median and P99 are then
	// those of the small transfers.
	LargeMedian float64
	// Pauses is how often the switch has paused a host, in all, with WayPFC.
	Pauses   float64
	Rekey    *Rekey
	Failover *Failover
	// Rack has the results that only a rack has. If it is set, one round trip in the fields above
	// is Rack.RTT.
	Rack *OneRMARack
}

// Times sorts took, the times of transfers, and sets Median and P99 from them. Times that were
// measured in slow motion must have been converted to those of the paper's testbed before.
func (r *OneRMAResult) Times(took []time.Duration) { r.Median, r.P99 = quantiles(took) }

// LargeTimes sets the median of large transfers from their times, which it sorts.
func (r *OneRMAResult) LargeTimes(took []time.Duration) { r.LargeMedian, _ = quantiles(took) }

// quantiles returns quantiles in round trips; 0 if there are no times. It sorts the times.
func quantiles(took []time.Duration) (median, p99 float64) {
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	rtts := func(share float64) float64 {
		return float64(took[min(len(took)-1, int(share*float64(len(took))))]) / float64(OneRMARTT)
	}
	return rtts(0.5), rtts(0.99)
}

// How figure 15 is measured, in virtual time and on a rack. A flow has reached the line rate when
// its rate over OneRMALineStep round trips is at least OneRMALine times the line rate. The second
// flow begins OneRMASecond round trips after the first one or, in SoloRamp in the simulator, that
// long after the first one has reached the line rate. The rates of both flows are compared over
// OneRMAFairStep round trips.
const (
	OneRMALine     = 0.9
	OneRMALineStep = 2
	OneRMASecond   = 80
	OneRMAFairStep = 5
)

// OneRMAFair reports whether two rates are fair: the smaller one is at least 0.8 of the larger one.
func OneRMAFair(a, b float64) bool { return a+b > 0 && min(a, b) >= 0.8*max(a, b) }

func (l OneRMA) label() string {
	return fmt.Sprintf("1RMA %s %s: %d hosts, first window %g, window %d, threshold %d, jitter %v, large %d, slots %d, load %g, WRITE %v%s", l.Kind, l.Way, l.Hosts,
		l.First, l.Window, l.Threshold, l.Jitter, l.Large, l.Slots, l.Load, l.Write, l.classes())
}

func (l OneRMA) effort() float64 { return 1 + float64(l.Hosts) }

func (l OneRMA) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.OneRMA(ctx, l)
	return outcome{solo: &res}, err
}

func (o *outcome) soloMedian() float64   { return o.solo.Median }
func (o *outcome) soloP99() float64      { return o.solo.P99 }
func (o *outcome) soloFair() float64     { return o.solo.Fair }
func (o *outcome) soloGoodput() float64  { return 100 * o.solo.Goodput }
func (o *outcome) soloRetried() float64  { return 100 * o.solo.Retried }
func (o *outcome) soloDispatch() float64 { return 100 * o.solo.Dispatch }

// soloShed returns the percentage of operations that were shed for another reason than
// DISPATCH_TIMEOUT.
func (o *outcome) soloShed() float64 { return 100 * (o.solo.Retried - o.solo.Dispatch) }
