package cloversteer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// This is a model of appends that are absorbed: while one append of a key is in flight, others wait
// in the switch. When it has succeeded, each waiting append makes its own node point to the node of
// the append that succeeded. The model tries every order of events. Requests may be lost or late,
// the switch may crash, and clients may give a request up at any time and look for their nodes.

// absorbing is a variant of the rules.
type absorbing uint8

const (
	// asBuilt: an append is absorbed by one that was sent after it arrived. A client that gives an
	// append up connects again to the server of its node before it looks for the node, and the
	// server ends its former connection before that.
	asBuilt absorbing = iota
	// connectionsStay: the server does not end the former connection.
	connectionsStay
	// anyWaiting: the append in flight also absorbs those that arrived after it was sent.
	anyWaiting
)

// Nodes of the model: the tail of the chain at the beginning, the node of the append in flight, the
// node of a waiting append, and a node that is appended by a request which the switch does not
// steer.
const (
	oldTail = iota
	leader
	waiter
	stranger
	joinsNodes
)

// where says where the request of an append is.
type where uint8

const (
	coming  where = iota // it has not reached the switch
	waiting              // in the switch
	toChain              // on its way to the header of oldTail
	toSelf               // on its way to the header of its own node
	over                 // executed, or lost
)

// stage says what the client of an append does.
type stage uint8

const (
	asks    stage = iota // it waits for the answer
	knows                // it was told that the append succeeded, or has found that out
	loser                // it was told that the append failed
	gaveUp               // it has no answer, and has touched the node
	repeats              // it has found oldTail as the end of the chain, and repeats the append
	relinks              // it has found another end of the chain, and appends the node there
)

// joins is a state of the model.
type joins struct {
	next    [joinsNodes]int8 // the header of each node; 0: no successor
	request [joinsNodes]where
	answer  [joinsNodes]int8 // of an executed request; 0: none, 1: success, 2: failure
	// behind: the append arrived before that of the leader was executed.
	behind [joinsNodes]bool
	// settled: the switch has seen the answer of the leader, or has been restarted, or the leader
	// was not answered in time.
	settled bool
	stage   [joinsNodes]stage
	end     [joinsNodes]int8
}

func (s *joins) swap(at, node int8) bool {
	if s.next[at] != 0 {
		return false
	}
	s.next[at] = node
	return true
}

func (s *joins) chain() (list []int8, ok bool) {
	for at := int8(oldTail); ; at = s.next[at] {
		if slices.Contains(list, at) {
			return list, false
		}
		if list = append(list, at); s.next[at] == 0 {
			return list, true
		}
	}
}

// leads reports whether the successors of a node lead into the chain.
func (s *joins) leads(n int8, chain []int8) bool {
	for range joinsNodes {
		if slices.Contains(chain, n) {
			return true
		}
		n = s.next[n]
	}
	return false
}

// damage says what is wrong in a state; "" if nothing is.
func (s *joins) damage() string {
	list, ok := s.chain()
	if !ok {
		return "the chain is a circle"
	}
	for n := int8(leader); n < joinsNodes; n++ {
		if s.stage[n] == knows && !s.leads(n, list) {
			return "an acknowledged node leads nowhere"
		}
		if s.next[n] == leader && n != oldTail && !s.behind[n] && s.request[n] == over {
			return "a value that could be read comes after one that was written later"
		}
	}
	return ""
}

// look is the search of a client for its node, as package clover does it. A client without an
// answer first checks whether the node that it named still has no successor. It takes its own node
// for linked if that one has a successor.
func (s *joins) look(n int8) {
	list, _ := s.chain()
	switch {
	case s.stage[n] == gaveUp && s.next[oldTail] == 0:
		s.stage[n] = repeats
	case slices.Contains(list, n), s.stage[n] == gaveUp && s.next[n] != 0:
		s.stage[n] = knows
	default:
		s.stage[n], s.end[n] = relinks, list[len(list)-1]
	}
}

// steps returns the states that may follow, with the names of the steps.
func (s joins) steps(rule absorbing) (next []joins, names []string) {
	add := func(name string, do func(s *joins)) {
		t := s
		do(&t)
		next, names = append(next, t), append(names, name)
	}
	for n := int8(leader); n < joinsNodes; n++ {
		steer := n == waiter
		switch s.request[n] {
		case coming:
			add(fmt.Sprint("arrive ", n), func(s *joins) {
				s.behind[n] = s.next[oldTail] != leader
				if s.request[n] = toChain; steer && !s.settled {
					s.request[n] = waiting
				}
			})
		case waiting:
			add(fmt.Sprint("let go ", n), func(s *joins) { s.request[n] = toChain })
		case toChain:
			add(fmt.Sprint("execute ", n), func(s *joins) { s.execute(n, oldTail, n) })
		case toSelf:
			add(fmt.Sprint("absorb ", n), func(s *joins) { s.execute(n, n, leader) })
			add(fmt.Sprint("send again after a crash ", n), func(s *joins) { s.request[n] = toChain })
		case over:
		}
		if s.answer[n] != 0 && (s.stage[n] == asks || n == leader && !s.settled) {
			add(fmt.Sprint("answer ", n), func(s *joins) { s.tell(n, rule) })
		}
		switch s.stage[n] {
		case asks:
			if s.request[n] != coming {
				add(fmt.Sprint("give up ", n), func(s *joins) { s.giveUp(n, rule) })
			}
		case loser, gaveUp:
			add(fmt.Sprint("look ", n), func(s *joins) { s.look(n) })
		case repeats:
			add(fmt.Sprint("repeat ", n), func(s *joins) {
				if s.stage[n] = gaveUp; s.swap(oldTail, n) {
					s.stage[n] = knows
				}
			})
		case relinks:
			add(fmt.Sprint("append ", n), func(s *joins) {
				if s.stage[n] = loser; s.swap(s.end[n], n) {
					s.stage[n] = knows
				}
			})
		case knows:
		}
	}
	return next, names
}

// execute is the execution of a request by the server.
func (s *joins) execute(n, at, node int8) {
	s.request[n], s.answer[n] = over, 2
	if s.swap(at, node) {
		s.answer[n] = 1
	}
}

// tell passes an answer through the switch to its client, unless the client has given the request
// up.
func (s *joins) tell(n int8, rule absorbing) {
	if s.stage[n] == asks {
		if s.stage[n] = loser; s.answer[n] == 1 {
			s.stage[n] = knows
		}
	}
	if n != leader || s.settled {
		return
	}
	s.settled = true
	if s.request[waiter] != waiting {
		return
	}
	if s.request[waiter] = toChain; s.answer[n] == 1 && (s.behind[waiter] || rule == anyWaiting) {
		s.request[waiter] = toSelf
	}
}

// giveUp lets a client connect again and touch its node: the switch then sends a waiting copy of
// the append to the node that the client named. Requests of the former connection to the server of
// the client's node are not executed any more; the node that the client named may be on another
// server.
func (s *joins) giveUp(n int8, rule absorbing) {
	s.stage[n] = gaveUp
	switch {
	case s.request[n] == waiting:
		s.request[n] = toChain
	case s.request[n] == toSelf && rule != connectionsStay:
		s.request[n] = over
	}
}

func searchJoins(rule absorbing) (found map[string]string, states int) {
	type visit struct {
		joins
		way []string
	}
	found = make(map[string]string)
	seen := map[joins]bool{{}: true}
	for queue := []visit{{}}; len(queue) > 0; queue = queue[1:] {
		v := queue[0]
		if d := v.damage(); d != "" {
			if _, ok := found[d]; !ok {
				found[d] = strings.Join(v.way, ", ")
			}
			continue
		}
		next, names := v.steps(rule)
		for i, s := range next {
			if !seen[s] {
				seen[s] = true
				queue = append(queue, visit{s, append(slices.Clone(v.way), names[i])})
			}
		}
	}
	return found, len(seen)
}

// An append may be absorbed by one that is sent after it has arrived, because no request of a
// connection is executed after its client has made another connection.
func TestAbsorbedAppends(t *testing.T) {
	for rule, want := range map[absorbing][]string{
		asBuilt:         nil,
		connectionsStay: {"the chain is a circle"},
		anyWaiting:      {"a value that could be read comes after one that was written later"},
	} {
		found, states := searchJoins(rule)
		t.Logf("rule %d: %d states, %q", rule, states, found)
		if len(found) != len(want) {
			t.Errorf("rule %d: %q, want %q", rule, found, want)
		}
		for _, d := range want {
			if found[d] == "" {
				t.Errorf("rule %d: no order of events leads to: %s", rule, d)
			}
		}
		if states < 1000 {
			t.Errorf("rule %d: only %d states", rule, states)
		}
	}
}
