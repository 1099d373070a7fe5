package transport

// phase says how a responder treats the next request of its peer.
type phase uint8

const (
	phaseSilent  phase = iota // the peer has sent nothing yet
	phaseInOrder              // the next request is expected at ePSN
	phaseGap                  // a request ahead of ePSN has been answered with a sequence NAK, the only one for this gap
	phaseRefused              // a request was refused with a fatal NAK: when all responses up to the NAK are sent, the queue pair fails
	phaseEnded                // the queue pair is no longer in a state in which it receives
)

var phaseNames = [...]string{"silent", "in order", "gap", "refused", "ended"}

func (p phase) String() string { return phaseNames[p] }

// phaseEvent is an event that changes the phase.
type phaseEvent uint8

const (
	heardFirst phaseEvent = iota // the first request of the peer has arrived; its PSN was not examined yet
	heardExpected
	heardAhead
	refusedFatally
	stopped
)

var phaseEventNames = [...]string{"first request", "expected PSN", "PSN ahead", "refusal", "stop"}

// phaseMoves is the transition table of a responder, by phase and event. The golden file
// testdata/phases.golden is its printed form. In the phases refused and ended, the responder drops
// requests without an event.
var phaseMoves = [...][len(phaseEventNames)]phase{
	phaseSilent:  {heardFirst: phaseInOrder, heardExpected: phaseSilent, heardAhead: phaseSilent, refusedFatally: phaseSilent, stopped: phaseEnded},
	phaseInOrder: {heardFirst: phaseInOrder, heardExpected: phaseInOrder, heardAhead: phaseGap, refusedFatally: phaseRefused, stopped: phaseEnded},
	phaseGap:     {heardFirst: phaseGap, heardExpected: phaseInOrder, heardAhead: phaseGap, refusedFatally: phaseRefused, stopped: phaseEnded},
	phaseRefused: {heardFirst: phaseRefused, heardExpected: phaseRefused, heardAhead: phaseRefused, refusedFatally: phaseRefused, stopped: phaseEnded},
	phaseEnded:   {heardFirst: phaseEnded, heardExpected: phaseEnded, heardAhead: phaseEnded, refusedFatally: phaseEnded, stopped: phaseEnded},
}

func (p *phase) on(e phaseEvent) { *p = phaseMoves[*p][e] }
