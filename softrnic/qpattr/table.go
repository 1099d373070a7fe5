package qpattr

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// edge is a transition, or a change of attributes within a state.
type edge struct{ from, to verbs.QPState }

// The edges that take attributes.
var (
	toInit = edge{verbs.StateReset, verbs.StateInit}
	inInit = edge{verbs.StateInit, verbs.StateInit}
	toRTR  = edge{verbs.StateInit, verbs.StateRTR}
	toRTS  = edge{verbs.StateRTR, verbs.StateRTS}
	inRTS  = edge{verbs.StateRTS, verbs.StateRTS}
	toSQD  = edge{verbs.StateRTS, verbs.StateSQD}
	inSQD  = edge{verbs.StateSQD, verbs.StateSQD}
	resume = edge{verbs.StateSQD, verbs.StateRTS}
	repair = edge{verbs.StateSQE, verbs.StateRTS}
)

// legal reports whether a program may ask for the edge. RESET and ERR can be reached from everywhere,
// without an attribute, except ERR from RESET, which kernels refuse. RTR and SQE cannot be modified:
// from there a queue pair only goes on.
func (e edge) legal() bool {
	switch e.to {
	case verbs.StateReset:
		return e.from <= verbs.StateError
	case verbs.StateError:
		return e.from != verbs.StateReset && e.from <= verbs.StateError
	default:
		return slices.Contains([]edge{toInit, inInit, toRTR, toRTS, inRTS, toSQD, inSQD, resume, repair}, e)
	}
}

// place is where an attribute belongs: edges of some services.
type place struct {
	services []verbs.QPType
	edges    []edge
}

func of(places []place, service verbs.QPType, e edge) bool {
	return slices.ContainsFunc(places, func(p place) bool { return slices.Contains(p.services, service) && slices.Contains(p.edges, e) })
}

// at returns the place of an attribute that some services have at some edges.
func at(services []verbs.QPType, edges ...edge) []place { return []place{{services, edges}} }

// Services that have an attribute in common.
var (
	all        = []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.XRCInitiator, verbs.XRCTarget}
	connected  = []verbs.QPType{verbs.RC, verbs.UC, verbs.XRCInitiator, verbs.XRCTarget}
	unreliable = []verbs.QPType{verbs.UC, verbs.UD}
	reliable   = []verbs.QPType{verbs.RC, verbs.XRCInitiator, verbs.XRCTarget}
	requesters = []verbs.QPType{verbs.RC, verbs.XRCInitiator} // of reliable services
	responders = []verbs.QPType{verbs.RC, verbs.XRCTarget}
	onlyUC     = []verbs.QPType{verbs.UC}
	datagrams  = []verbs.QPType{verbs.UD}
)

// line is an attribute with the places at which a command must name it, and those at which it may.
type line struct {
	attribute Mask
	must, may []place
}

// table has every attribute but State and Cap: State is allowed everywhere, and Cap nowhere, because
// queues of a queue pair cannot be resized (IBTA 11.2.5.2/attributes).
var table = []line{
	{attribute: CurrentState, may: slices.Concat(at(all, toRTS, inRTS, resume), at(unreliable, repair))},
	{attribute: SQDNotify, may: at(all, toSQD)},
	{attribute: Access, must: at(connected, toInit), may: slices.Concat(at(connected, inInit, toRTR, toRTS, inRTS, inSQD, resume), at(onlyUC, repair))},
	{attribute: PKeyIndex, must: at(all, toInit), may: at(all, inInit, toRTR, inSQD)},
	{attribute: Port, must: at(all, toInit), may: slices.Concat(at(all, inInit), at(reliable, inSQD))},
	{attribute: QKey, must: at(datagrams, toInit), may: at(datagrams, inInit, toRTR, toRTS, inRTS, inSQD, resume, repair)},
	{attribute: Dest, must: at(connected, toRTR), may: at(connected, inSQD)},
	{attribute: PathMTU, must: at(connected, toRTR)},
	{attribute: DestQPN, must: at(connected, toRTR)},
	{attribute: RecvPSN, must: at(connected, toRTR)},
	{attribute: MaxDestRdAtomic, must: at(responders, toRTR), may: at(responders, inSQD)},
	{attribute: MinRNRTimer, must: at(responders, toRTR), may: at(responders, toRTS, inRTS, inSQD, resume)},
	{attribute: SendPSN, must: at(all, toRTS)},
	{attribute: Timeout, must: at(reliable, toRTS), may: at(reliable, inSQD)},
	{attribute: RetryCount, must: at(requesters, toRTS), may: at(requesters, inSQD)},
	{attribute: RNRRetry, must: at(requesters, toRTS), may: at(requesters, inSQD)},
	{attribute: MaxRdAtomic, must: at(requesters, toRTS), may: at(requesters, inSQD)},
	{attribute: AltPath, may: at(connected, toRTR, toRTS, inRTS, inSQD, resume)},
	{attribute: Migration, may: at(connected, toRTS, inRTS, inSQD, resume)},
}
