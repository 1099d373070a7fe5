package scenario

import (
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// crashStep is the stage that the victim's request has reached when the victim dies.
type crashStep uint8

const (
	// beforeSwitch: the victim has sent the request, which does not arrive at the switch.
	beforeSwitch crashStep = iota
	// atSwitch: the request has arrived at the switch.
	atSwitch
	// atServer: the request has arrived at the server, which has executed it.
	atServer
	// answerAtSwitch: the server's answer to the request has arrived at the switch.
	answerAtSwitch
	// answered: the answer to the request has arrived at the victim.
	answered
	crashSteps
)

var crashStepNames = [...]string{"before the switch", "at the switch", "at the server", "answer at the switch", "answered"}

// String returns the name of the stage.
func (s crashStep) String() string { return crashStepNames[s] }

// trigger follows the packets on all links and calls fire once. With a victim, it does so when the
// victim's n-th request has reached the stage step; without one, when all clients together have
// sent n requests. The switch may give a request another queue pair and PSN, by which trigger could
// not recognise it. So trigger assumes that the next request that leaves the switch is the
// victim's, and that the next answer of a server is the answer to it.
type trigger struct {
	victim string // a host whose requests are counted; "" means all clients
	n      int
	step   crashStep
	fire   func()

	seen  int
	stage crashStep
	hot   bool
	done  bool
	frame wire.Frame
}

func (t *trigger) see(ev *sim.Event) {
	if t.done || wire.ParseFrame(ev.Frame, &t.frame) != nil {
		return
	}
	request := t.frame.BTH.Opcode.Info().Flags&wire.OpRequest != 0 && t.frame.BTH.DestQP > 1
	link, up := ev.Link(), ev.Dir() == fault.Up
	client := len(link) > 0 && link[0] == 'c'
	if !t.hot {
		if request && client && up && ev.Kind == sim.Sent && (t.victim == "" || link == t.victim) {
			if t.seen++; t.seen == t.n {
				t.hot, t.stage = true, beforeSwitch
			}
		}
	} else if ev.Kind == sim.Delivered {
		t.follow(link, up, client, request)
	}
	if t.hot && t.stage >= t.step {
		t.done = true
		t.fire()
	}
}

// follow is called for each packet that has arrived. It moves to the next stage if the packet is
// the one for which the present stage waits.
func (t *trigger) follow(link string, up, client, request bool) {
	switch {
	case t.stage == beforeSwitch && link == t.victim && up && request,
		t.stage == atSwitch && !client && !up && request,
		t.stage == atServer && !client && up && !request,
		t.stage == answerAtSwitch && link == t.victim && !up && !request:
		t.stage++
	}
}
