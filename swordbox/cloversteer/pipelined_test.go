package cloversteer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Hardened steering sends an append when the one before it has been acknowledged. This is a model
// of the alternative: the switch sends the appends of a key one after the other on a connection of
// its own, each to the node of the append before it, and READs go only to nodes whose appends are
// acknowledged. The server executes the requests of one connection in order. So if the first append
// succeeds, all executed appends form one chain. The model tries every order of events, with a
// crash of the switch at any time.

// pipelining is a variant of the rules for that connection.
type pipelining uint8

const (
	// answersAtOnce: the client of an append gets the answer when the server has given it.
	answersAtOnce pipelining = iota
	// answersBehindSuccess: behind an append that failed, all clients are told that theirs failed.
	answersBehindSuccess
	// wordOwned: as answersAtOnce, but all operations on the header of the first append's target
	// travel on the switch's connection, so that the first append cannot fail.
	wordOwned
)

// Nodes of the model: the tail of the chain when it begins, those of the appends in the pipeline,
// and one whose client appends to the tail at the same time on its own connection.
const (
	tailNode = iota
	nodeA
	nodeB
	nodeC
	outsider
	modelNodes
)

// writer is what a client knows of its append.
type writer uint8

const (
	unanswered writer = iota // it waits for the answer
	told                     // it was told that the append succeeded, or has found that out
	failed                   // it was told that the append failed, and looks for the end of the chain
	inDoubt                  // it got no answer
	relinking                // it has found an end, and appends its node there
)

// modelChain is a state of the model.
type modelChain struct {
	next     [modelNodes]int8 // the header of each node; 0: no successor
	executed int8             // appends of the pipeline
	answered int8
	success  [modelNodes]bool // of the executed appends, by their place in the pipeline
	crashed  bool
	writers  [modelNodes]writer
	ends     [modelNodes]int8 // in relinking
}

// swap is the server's compare-and-swap on the header of a node.
func (s *modelChain) swap(at, node int8) bool {
	if s.next[at] != 0 {
		return false
	}
	s.next[at] = node
	return true
}

// chain lists the nodes of the chain; ok is false if it is a circle.
func (s *modelChain) chain() (list []int8, ok bool) {
	for at := int8(tailNode); ; at = s.next[at] {
		if slices.Contains(list, at) {
			return list, false
		}
		if list = append(list, at); s.next[at] == 0 {
			return list, true
		}
	}
}

// damage says what is wrong in a state; "" if nothing is.
func (s *modelChain) damage() string {
	list, ok := s.chain()
	if !ok {
		return "the chain is a circle"
	}
	for n := int8(nodeA); n < modelNodes; n++ {
		if s.writers[n] == told && !slices.Contains(list, n) {
			return "an acknowledged node is not in the chain"
		}
	}
	return ""
}

// look is a walk of a client that looks for its node or for the end of the chain, as package clover
// does it: a client without answer takes its node for linked if the node has a successor.
func (s *modelChain) look(n int8) {
	list, _ := s.chain()
	if slices.Contains(list, n) || s.writers[n] == inDoubt && s.next[n] != 0 {
		s.writers[n] = told
		return
	}
	s.writers[n], s.ends[n] = relinking, list[len(list)-1]
}

// result is what a client is told.
func result(ok bool) writer {
	if ok {
		return told
	}
	return failed
}

// steps returns the states that may follow, with the names of the steps.
func (s modelChain) steps(rule pipelining) (next []modelChain, names []string) {
	pipeline := []int8{nodeA, nodeB, nodeC}
	if rule == wordOwned {
		pipeline = append(pipeline, outsider) // the switch puts it behind the others
	}
	add := func(name string, do func(s *modelChain)) {
		t := s
		do(&t)
		next, names = append(next, t), append(names, name)
	}
	if !s.crashed && int(s.executed) < len(pipeline) {
		add("execute", func(s *modelChain) {
			target := int8(tailNode)
			if s.executed > 0 {
				target = pipeline[s.executed-1]
			}
			s.success[s.executed] = s.swap(target, pipeline[s.executed])
			s.executed++
		})
	}
	if !s.crashed && s.answered < s.executed {
		add("answer", func(s *modelChain) {
			ok := s.success[s.answered]
			if rule == answersBehindSuccess {
				ok = !slices.Contains(s.success[:s.answered+1], false)
			}
			s.writers[pipeline[s.answered]] = result(ok)
			s.answered++
		})
	}
	if rule != wordOwned && s.writers[outsider] == unanswered {
		add("outsider", func(s *modelChain) { s.writers[outsider] = result(s.swap(tailNode, outsider)) })
	}
	if !s.crashed {
		add("crash", func(s *modelChain) {
			s.crashed = true
			for _, n := range pipeline {
				if s.writers[n] == unanswered {
					s.writers[n] = inDoubt
				}
			}
		})
	}
	for n := int8(nodeA); n < modelNodes; n++ {
		switch s.writers[n] {
		case failed, inDoubt:
			add(fmt.Sprint("look ", n), func(s *modelChain) { s.look(n) })
		case relinking:
			add(fmt.Sprint("append ", n), func(s *modelChain) { s.writers[n] = result(s.swap(s.ends[n], n)) })
		case unanswered, told:
		}
	}
	return next, names
}

// search tries all orders of steps and returns the shortest one to each kind of damage.
func search(rule pipelining) (found map[string]string, states int) {
	type visit struct {
		modelChain
		way []string
	}
	found = make(map[string]string)
	seen := map[modelChain]bool{{}: true}
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

// Appends in a pipeline are correct only if the first one cannot fail. If it fails, the appends
// after it succeed on nodes that are in no chain. Neither their answers nor answers that the switch
// changes keep their clients from losing values.
func TestPipelinedAppends(t *testing.T) {
	for rule, want := range map[pipelining][]string{
		answersAtOnce:        {"an acknowledged node is not in the chain", "the chain is a circle"},
		answersBehindSuccess: {"an acknowledged node is not in the chain", "the chain is a circle"},
		wordOwned:            nil,
	} {
		found, states := search(rule)
		t.Logf("rule %d: %d states, %q", rule, states, found)
		if len(found) != len(want) {
			t.Errorf("rule %d: %q, want %q", rule, found, want)
		}
		for _, d := range want {
			if found[d] == "" {
				t.Errorf("rule %d: no order of events leads to: %s", rule, d)
			}
		}
		if states < 50 {
			t.Errorf("rule %d: only %d states", rule, states)
		}
	}
}
