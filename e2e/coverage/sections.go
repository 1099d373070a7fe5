package main

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// sections returns all tables.
func sections() []section {
	out := []section{rcRequests(), rcAnswers(), ucRequests(), udRequests(), xrcRequests()}
	for _, of := range []string{"RC", "UC", "UD"} {
		out = append(out, posts(of))
	}
	for _, of := range []string{"RC", "UC", "UD"} {
		out = append(out, ends(of))
	}
	return out
}

// elsewhere matches the cells of faults of links and of dropped packets in other states than RTS.
// No test must reach them, because the tests' links carry packets between connected queue pairs.
var elsewhere = never{states: minus(allState, "RTS"), fates: slices.Concat(onWire, dropped), why: "wires are between connected queue pairs"}

func rcRequests() section {
	return section{
		title: "RC: what becomes of a request", of: "RC", states: rcStates,
		rows:  append(opcodes(wire.ServiceRC, wire.OpRequest), row{name: "reserved"}),
		fates: minus(connFates, "gap", "ends another", "no beginning"), never: requestRules(),
		may: []never{elsewhere, {fates: onWire, rows: reserved, why: "no NIC sends it"}},
	}
}

func rcAnswers() section {
	ack := oneOf("RC_ACK")
	return section{
		title: "RC: what becomes of an answer", of: "RC", states: rcStates, rows: opcodes(wire.ServiceRC, wire.OpResponse),
		fates: slices.Concat([]string{
			"taken", "stale", "bad", "local", "RNR_NAK", "while waiting", "NAK_PSN_SEQ", "NAK_INV_REQ", "NAK_REM_ACCESS", "NAK_REM_OP", "NAK reserved", "state",
		}, onWire, dropped),
		never: []never{
			{states: []string{"RESET", "INIT", "RTR", "ERR"}, fates: slices.Concat([]string{
				"taken", "stale", "bad", "local", "RNR_NAK", "while waiting", "NAK_PSN_SEQ", "NAK_INV_REQ", "NAK_REM_ACCESS", "NAK_REM_OP", "NAK reserved",
			}, onWire, minus(dropped, "corrupt")), why: "the state has asked for nothing: all that are not corrupt have the fate \"state\""},
			{states: []string{"RTS", "SQD"}, fates: []string{"state"}, why: whyHears},
			{fates: []string{"RNR_NAK", "while waiting", "NAK_PSN_SEQ", "NAK_INV_REQ", "NAK_REM_ACCESS", "NAK_REM_OP", "NAK reserved"}, rows: not(ack), why: "only an acknowledgement refuses"},
			{fates: []string{"bad"}, rows: ack, why: "it has nothing but its AETH: a reserved one is \"NAK reserved\""},
			{fates: []string{"local"}, rows: ack, why: "it brings no data"},
		},
		may: []never{elsewhere},
	}
}

func ucRequests() section {
	return section{
		title: "UC: what becomes of a packet", of: "UC", states: allState, rows: opcodes(wire.ServiceUC, wire.OpRequest),
		fates: minus(connFates, "ahead", "behind", "reserved", "too many", "misaligned", "invalidate"),
		never: append(requestRules(),
			never{fates: []string{"no beginning", "out of place"}, rows: has(wire.OpFirst | wire.OpOnly), why: "it begins a message wherever it comes"},
		),
		may: []never{elsewhere, {fates: onWire, why: "to the receiver of an unreliable service it is a gap"}},
	}
}

func udRequests() section {
	fates := slices.Concat([]string{"taken", "Q_Key", "not ready", "length", "too long", "local", "state"}, onWire, []string{"corrupt", "P_Key"})
	return section{
		title: "UD: what becomes of a datagram", of: "UD", states: allState, rows: opcodes(wire.ServiceUD, wire.OpRequest), fates: fates,
		never: []never{
			{states: deaf, fates: minus(fates, "state", "corrupt"), why: whyDeaf},
			{states: hears, fates: []string{"state"}, why: whyHears},
		},
		may: []never{elsewhere, {fates: onWire, why: "it cannot be observed"}},
	}
}

// xrcRequests is what XRC has beside RC, whose responder it is otherwise: what becomes of the shared receive queue
// that a request names.
func xrcRequests() section {
	return section{
		title: "XRC: what becomes of a request to a target", of: "XRC-TGT", states: []string{"RTS"}, rows: opcodes(wire.ServiceXRC, wire.OpRequest),
		fates: []string{"taken", "no SRQ", "XRC domain", "broken SRQ"},
	}
}

// operations has the operations of each type of queue pair.
var operations = map[string][]verbs.WROpcode{
	"RC": {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpCmpSwap, verbs.OpFetchAdd,
		verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush,
	},
	"UC": {verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR},
	"UD": {verbs.OpSend, verbs.OpSendImm},
}

func workRows(of, verb string) (rows []row) {
	for _, op := range operations[of] {
		rows = append(rows, row{name: verb + " " + op.String()})
	}
	return rows
}

func statesOf(of string) []string {
	if of == "RC" {
		return rcStates
	}
	return allState
}

func posts(of string) section {
	s := section{
		title: of + ": what becomes of a post", of: of, states: statesOf(of), rows: workRows(of, "post"),
		fates: []string{"queued", "state", "no room", "malformed"},
		never: []never{
			{states: []string{"RESET", "INIT", "RTR"}, fates: []string{"queued", "no room", "malformed"}, why: "the state refuses the post before it is looked at"},
			{states: []string{"RTS", "SQD", "SQE", "ERR"}, fates: []string{"state"}, why: "the state takes posts"},
			{states: []string{"SQE", "ERR"}, fates: []string{"no room"}, why: "what is posted there is flushed at once"},
		},
	}
	local := oneOf(verbs.OpLocalInv.String(), verbs.OpBindMW.String(), verbs.OpRegMR.String())
	s.may = append(s.may, never{states: []string{"RTS"}, fates: []string{"no room"}, rows: local, why: "it waits only behind others"})
	if of != "RC" {
		s.may = append(s.may, never{states: []string{"RTS"}, fates: []string{"no room"}, why: "only what is longer than a window waits"})
	}
	return s
}

// ends returns the table of the statuses of work requests, and of the reasons why the oldest one
// was retransmitted.
func ends(of string) section {
	local := oneOf(verbs.OpLocalInv.String(), verbs.OpBindMW.String(), verbs.OpRegMR.String())
	answered := oneOf(verbs.OpRead.String(), verbs.OpCmpSwap.String(), verbs.OpFetchAdd.String(), verbs.OpMaskedCmpSwap.String(), verbs.OpMaskedFetchAdd.String(), verbs.OpAtomicWrite.String(), verbs.OpFlush.String())
	receives := oneOf(verbs.OpSend.String(), verbs.OpSendImm.String(), verbs.OpSendInv.String(), verbs.OpWriteImm.String())
	statuses := []verbs.Status{verbs.Success, verbs.LocProtErr, verbs.MWBindErr, verbs.WRFlushErr}
	retries := []string{"timeout", "NAK", "implied NAK", "RNR"}
	if of == "RC" {
		statuses = append(statuses, verbs.LocQPOpErr, verbs.RemInvReqErr, verbs.RemAccessErr, verbs.RemOpErr, verbs.RetryExcErr, verbs.RNRRetryExcErr, verbs.BadRespErr)
	} else {
		retries = nil
	}
	if of == "UD" { // which has no memory windows
		statuses = slices.DeleteFunc(statuses, func(s verbs.Status) bool { return s == verbs.MWBindErr })
	}
	var fates []string
	for _, st := range statuses {
		fates = append(fates, st.String())
	}
	fates = append(fates, retries...)
	flush, success := verbs.WRFlushErr.String(), verbs.Success.String()
	s := section{
		title: of + ": how a work request ends, and why it is sent again", of: of, rows: workRows(of, "done"), fates: fates,
		states: statesOf(of)[3:],
		never: []never{
			{states: []string{"ERR"}, fates: minus(fates, flush), why: "what is left there is flushed"},
			{states: []string{"RTS", "SQD"}, fates: []string{flush}, why: "nothing is flushed before the state is left"},
			{fates: minus(fates, success, verbs.MWBindErr.String(), flush), rows: local, why: "it sends nothing and uses no data"},
			{fates: []string{verbs.MWBindErr.String()}, rows: not(local), why: "it manages no memory"},
			{fates: []string{verbs.LocProtErr.String()}, rows: oneOf(verbs.OpAtomicWrite.String(), verbs.OpFlush.String()), why: "it uses no memory of its own"},
			{fates: []string{verbs.LocQPOpErr.String(), "implied NAK"}, rows: not(answered), why: "it has no answer of its own"},
			{states: []string{"SQD"}, rows: local, why: "it is started and done in one step, and SQD starts nothing"},
		},
	}
	if of == "RC" {
		s.never = append(s.never, never{states: []string{"SQD"}, fates: []string{verbs.LocQPOpErr.String()}, why: "it is found at the start, and SQD starts nothing"})
		s.may = []never{
			{fates: []string{verbs.RNRRetryExcErr.String(), "RNR"}, rows: not(receives), why: "a responder has no reason to say so"},
			{states: []string{"SQD"}, fates: []string{verbs.LocProtErr.String()}, why: "only memory that goes away meanwhile makes it"},
		}
		return s
	}
	s.never = append(s.never,
		never{states: []string{"RTS", "SQD"}, fates: minus(fates, success, flush), why: "the send queue has stopped, in SQE, when its failure is reported"},
		never{states: []string{"SQE"}, fates: []string{success}, why: "nothing is sent there"})
	s.may = []never{{states: []string{"SQD"}, why: "what was started is sent in the step that started it, unless it is longer than a window"}}
	return s
}
