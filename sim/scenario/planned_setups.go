package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// smallSetup is a small configuration for the planned adversary: two clients, two adjacent words,
// and a switch with two shared connections to the memory server.
type smallSetup struct {
	name string
	doc  string
	// rules holds the switch's lists of rules. The switch starts with the first list; the act
	// newRules loads another one.
	rules []string
	// warm has the steps that each client does before the time smallReady; from these steps the
	// switch learns words and R_Keys. script has the steps that each client does from smallReady
	// on, when the adversary acts.
	warm, script [2][]step
	window       int       // window of the NICs in packets; 0 means their default
	mtu          verbs.MTU // path MTU of the clients' connections; 0 means the largest
	// kinds are the acts that the search tries; nil means packetActs. It tries them on the first
	// perHalf packets of each direction of a link; 0 means defaultPerHalf.
	kinds   []act
	perHalf int
	// halves are the directions of links, as indices of the list halves, in which acts are tried;
	// nil means all.
	halves []int
}

// step is a pause, or requests that a client posts together and whose answers it awaits, or both.
type step struct {
	ops   []wordOp
	pause time.Duration
	// paced is how many of the requests the client posts at a time, after each pause. It waits for
	// the answers when it has posted all. 0 means that it posts all at once.
	paced int
}

// wordOp is a request for word x, word y, or both, or for a slot that only its client uses.
type wordOp struct {
	history.Op
	word int // wordX or wordY; with far, the number of a slot
	both bool
	// long: true for a WRITE of three packets, which sets both words.
	long bool
	// far: true for a WRITE to a slot of memory that only this client uses.
	far bool
}

const (
	wordX = iota
	wordY
	smallWords

	farAt   = 1024 // offset of the clients' slots in the server's memory, behind the words
	farStep = 64
	// defaultPerHalf is the number of packets of each direction on which acts are tried, if the
	// setup does not give one.
	defaultPerHalf = 64
	// farSlots is the number of slots in the server's memory that each client has for itself.
	farSlots    = 16
	smallMemory = farAt + 2*farSlots*farStep
)

func fetchAdd(w int, v uint64) wordOp {
	return wordOp{Op: history.Op{Kind: history.FetchAdd, Value: v}, word: w}
}

func cmpSwap(w int, compare, v uint64) wordOp {
	return wordOp{Op: history.Op{Kind: history.CmpSwap, Compare: compare, Value: v}, word: w}
}

func setWord(w int, v uint64) wordOp {
	return wordOp{Op: history.Op{Kind: history.Write, Value: v}, word: w}
}

func setBoth(v uint64) wordOp {
	return wordOp{Op: history.Op{Kind: history.Write, Value: v}, both: true}
}

func setLong(v uint64) wordOp {
	return wordOp{Op: history.Op{Kind: history.Write, Value: v}, long: true}
}

func readWord(w int) wordOp { return wordOp{Op: history.Op{Kind: history.Read}, word: w} }

func readBoth() wordOp { return wordOp{Op: history.Op{Kind: history.Read}, both: true} }

// do returns a step that posts the requests ops together.
func do(ops ...wordOp) step { return step{ops: ops} }

// later is a pause that is longer than the switch waits for an answer before it sends a request
// again.
var later = step{pause: rto}

// settled is a pause that is longer than the switch waits, after a change of rules, for packets
// that were sent before the change.
var settled = step{pause: 12 * time.Millisecond}

// soon is a pause of about the time that a packet takes over a few links.
var soon = step{pause: 10 * time.Microsecond}

// farWrite returns a WRITE of v to a slot that only this client uses.
func farWrite(slot int, v uint64) wordOp {
	return wordOp{Op: history.Op{Kind: history.Write, Value: v}, far: true, word: slot}
}

// farWrites returns n WRITEs to slots that only this client uses.
func farWrites(n int) []wordOp {
	out := make([]wordOp, n)
	for i := range out {
		out[i] = farWrite(i%farSlots, uint64(i+1))
	}
	return out
}

// knows returns steps that make words known to the switch without changing them: each adds 0.
func knows(words ...int) []step {
	var out []step
	for range 3 {
		for _, w := range words {
			out = append(out, do(fetchAdd(w, 0)))
		}
	}
	return out
}

// adds returns n steps, each of which adds 1 to every one of the words.
func adds(n int, words ...int) []step {
	out := make([]step, n)
	for i := range out {
		for _, w := range words {
			out[i].ops = append(out[i].ops, fetchAdd(w, 1))
		}
	}
	return out
}

// proves returns steps by which the switch sees that a client's R_Key is valid for all of the
// memory.
func proves() []step {
	return []step{do(farWrite(0, 1)), do(farWrite(farSlots-1, 1))}
}

const (
	ruleAtomics = "server=ms0 action=atomics shards=2 service=" + switchService
	ruleOne     = "server=ms0 action=atomics shards=1 service=" + switchService
	ruleMove    = "server=ms0 action=move shards=2 service=" + switchService
	ruleTrack   = "server=ms0 action=track"
)

// packetActs are the acts that a setup tries on each packet if it names no others.
var packetActs = []act{{kind: drop}, {kind: late, n: 1}, {kind: late, n: 3}, {kind: twice}, {kind: twice, n: 2}}

// ruleActs are the acts of a setup whose rules change: mostly newRules, with each of five lists of
// rules.
var ruleActs = []act{{kind: newRules, n: 1}, {kind: drop}, {kind: newRules, n: 2}, {kind: newRules, n: 3}, {kind: newRules, n: 4}, {kind: newRules}, {kind: late, n: 1}}

// Setups returns the names of the setups of the scenario planned, and what the clients do in each.
func Setups() (list [][2]string) {
	for _, s := range smallSetups() {
		list = append(list, [2]string{s.name, s.doc})
	}
	return list
}

// smallSetups lists all setups, in the order in which they are tried.
func smallSetups() []smallSetup {
	xs := [2][]step{knows(wordX), knows(wordX)}
	both := [2][]step{knows(wordX, wordY), knows(wordX, wordY)}
	proven := [2][]step{append(knows(wordX, wordY), proves()...), append(knows(wordX, wordY), proves()...)}
	return []smallSetup{
		{
			name: "neighbour", doc: "one client WRITEs over a known word and its unknown neighbour, the other adds to the neighbour",
			rules: []string{ruleAtomics}, warm: xs,
			script: [2][]step{
				{do(setBoth(1 << 32)), do(fetchAdd(wordX, 10))},
				{do(fetchAdd(wordY, 1)), do(fetchAdd(wordY, 1)), later, do(fetchAdd(wordY, 1)), do(fetchAdd(wordY, 1))},
			},
		},
		{
			name: "mixed", doc: "both clients use every operation on two known words",
			rules: []string{ruleAtomics}, warm: both,
			script: [2][]step{
				{do(cmpSwap(wordX, 0, 100), fetchAdd(wordY, 1)), do(setBoth(1<<32), cmpSwap(wordX, 1<<32, 101)), do(readBoth(), fetchAdd(wordX, 1))},
				{do(fetchAdd(wordY, 2), setWord(wordX, 200)), do(cmpSwap(wordY, 3, 201), readWord(wordX)), later, do(fetchAdd(wordX, 4), fetchAdd(wordY, 4))},
			},
		},
		{
			name: "rules", doc: "the rules change while both clients add to a word; its atomics and moved requests take different shared connections",
			rules: []string{ruleMove, ruleAtomics, "", ruleTrack, ruleOne}, warm: proven, kinds: ruleActs,
			script: [2][]step{
				{do(fetchAdd(wordY, 100)), later, do(fetchAdd(wordY, 100)), settled, do(fetchAdd(wordY, 100))},
				slices.Concat([]step{soon}, adds(4, wordY), []step{later}, adds(2, wordY), []step{settled}, adds(4, wordY), []step{later}, adds(1, wordY)),
			},
		},
		{
			name: "first-rules", doc: "rules come while one client WRITEs over both words and the other adds to them",
			rules: []string{"", ruleAtomics, ruleMove}, warm: proven, kinds: []act{{kind: newRules, n: 1}, {kind: newRules, n: 2}, {kind: drop}, {kind: late, n: 1}, {kind: late, n: 9}},
			script: [2][]step{
				{do(setBoth(1 << 32)), settled, do(setBoth(1 << 33))},
				slices.Concat([]step{soon}, adds(6, wordX, wordY), []step{settled}, adds(4, wordX, wordY)),
			},
		},
		{
			name: "churn", doc: "the rules change while both clients use every operation on both words",
			rules: []string{ruleAtomics, ruleMove, "", ruleTrack, ruleOne}, warm: proven, kinds: ruleActs,
			script: [2][]step{
				{do(fetchAdd(wordX, 100), fetchAdd(wordY, 100)), do(setBoth(1<<32), fetchAdd(wordY, 100)), later, do(readBoth(), cmpSwap(wordX, 1<<32, 7)), settled, do(setBoth(1 << 33))},
				slices.Concat(adds(2, wordX, wordY), []step{soon}, adds(2, wordX, wordY), []step{settled}, adds(3, wordX, wordY), []step{later}, adds(1, wordX, wordY)),
			},
		},
		{
			name: "long", doc: "one client sends WRITEs of three packets over both words, the other adds to them, and the rules change",
			rules: []string{ruleAtomics, "", ruleMove}, warm: proven, mtu: verbs.MTU256, window: 2,
			kinds: append([]act{{kind: newRules, n: 1}, {kind: newRules}, {kind: silence, n: 12}}, packetActs...),
			script: [2][]step{
				{do(setLong(1 << 32)), later, do(setLong(1<<33), fetchAdd(wordX, 100)), settled, do(fetchAdd(wordY, 100), setLong(1<<34))},
				slices.Concat(adds(2, wordX, wordY), []step{soon}, adds(3, wordX, wordY), []step{later}, adds(2, wordX, wordY), []step{settled}, adds(4, wordX, wordY)),
			},
		},
		{
			name: "long-rules", doc: "rules come while one client sends a WRITE of three packets over both words, and the other adds to them",
			rules: []string{"", ruleAtomics}, warm: proven, mtu: verbs.MTU256, window: 2,
			kinds: append([]act{{kind: newRules, n: 1}, {kind: silence, n: 16}}, packetActs...),
			script: [2][]step{
				{do(setLong(1 << 32)), settled, do(setLong(1 << 33))},
				slices.Concat([]step{soon}, adds(2, wordX, wordY), []step{settled}, adds(6, wordX, wordY), []step{settled}, adds(2, wordX, wordY)),
			},
		},
		{
			name: "lock", doc: "both clients lock a word, one of them waits for it in the switch, and increment the other word by CAS",
			rules: []string{ruleAtomics + " misses=wait", ruleAtomics + " misses=switch"}, warm: both,
			kinds: append([]act{{kind: newRules, n: 1}}, packetActs...),
			script: [2][]step{
				{do(cmpSwap(wordX, 0, 1), fetchAdd(wordY, 1)), do(fetchAdd(wordY, 1), cmpSwap(wordX, 1, 0)), do(cmpSwap(wordY, 2, 9))},
				{do(cmpSwap(wordX, 0, 2)), do(cmpSwap(wordY, 2, 5), setWord(wordX, 0)), later, do(cmpSwap(wordX, 0, 3), readWord(wordY))},
			},
		},
		{
			name: "behind", doc: "one client posts 200 WRITEs behind an atomic on a known word, with a window of 1,024 packets",
			rules: []string{ruleMove, ruleAtomics}, warm: proven, window: 1024, perHalf: 12,
			script: [2][]step{
				{do(append([]wordOp{fetchAdd(wordX, 1)}, farWrites(200)...)...), do(fetchAdd(wordX, 1))},
				{do(fetchAdd(wordX, 10)), later, do(fetchAdd(wordX, 10))},
			},
		},
		{
			name: "silent", doc: "one client posts 5,000 WRITEs with a window of 8,192 packets, and its link loses all packets of one direction for a while",
			rules: []string{ruleMove}, warm: proven, window: 8192, perHalf: 3, halves: []int{0, 1},
			kinds: []act{{kind: silence, n: 3}, {kind: silence, n: 12}},
			script: [2][]step{
				{{ops: farWrites(5000), paced: 64, pause: 10 * time.Microsecond}, do(fetchAdd(wordX, 1))},
				{do(fetchAdd(wordX, 10))},
			},
		},
	}
}

func findSetup(name string) (*smallSetup, error) {
	var names []string
	for _, s := range smallSetups() {
		if s.name == name {
			return &s, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("%.40q is no small setup: %sthere are %v", name, nearest.Meant(name, names), names)
}

// acts returns the acts that the search tries on each packet of the setup.
func (s *smallSetup) acts() []act {
	if s.kinds == nil {
		return packetActs
	}
	return s.kinds
}
