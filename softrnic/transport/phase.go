package transport

// phase says how a responder treats the next request of its peer.
type phase uint8

const (
	phaseSilent  phase = iota // the peer has sent nothing yet
	phaseInOrder              // the next request is expected at ePSN
	phaseGap                  // a request ahead of ePSN drew the one sequence NAK of this gap
	phaseRefused              // a request drew a fatal NAK: the owed answers leave, then the queue pair fails
	phaseEnded                // the queue pair has left the states in which it receives
)

var phaseNames = [...]string{"silent", "in order", "gap", "refused", "ended"}

func (p phase) String() string { return phaseNames[p] }

// phaseEvent is an event that changes the phase.
type phaseEvent uint8

const (
	heardFirst phaseEvent = iota // any request, before its PSN is examined
	heardExpected
	heardAhead
	refusedFatally
	stopped
)

var phaseEventNames = [...]string{"first request", "expected PSN", "PSN ahead", "refusal", "stop"}

// phaseMoves is the transition table of a responder, by phase and event. The golden file
// testdata/phases.golden is its printed form. In the phases refused and ended, requests are dropped
// before they become events.
var phaseMoves = [...][len(phaseEventNames)]phase{
	phaseSilent:  {heardFirst: phaseInOrder, heardExpected: phaseSilent, heardAhead: phaseSilent, refusedFatally: phaseSilent, stopped: phaseEnded},
	phaseInOrder: {heardFirst: phaseInOrder, heardExpected: phaseInOrder, heardAhead: phaseGap, refusedFatally: phaseRefused, stopped: phaseEnded},
	phaseGap:     {heardFirst: phaseGap, heardExpected: phaseInOrder, heardAhead: phaseGap, refusedFatally: phaseRefused, stopped: phaseEnded},
	phaseRefused: {heardFirst: phaseRefused, heardExpected: phaseRefused, heardAhead: phaseRefused, refusedFatally: phaseRefused, stopped: phaseEnded},
	phaseEnded:   {heardFirst: phaseEnded, heardExpected: phaseEnded, heardAhead: phaseEnded, refusedFatally: phaseEnded, stopped: phaseEnded},
}

// on moves p to the phase after e.
func (p *phase) on(e phaseEvent) { *p = phaseMoves[*p][e] }
