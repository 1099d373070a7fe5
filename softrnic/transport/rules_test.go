package transport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The phases of a responder are a golden file, so that a review shows a changed transition.
func TestPhases(t *testing.T) { golden.Check(t, "testdata/phases.golden", phaseTable()) }

// attribute is one attribute of a transition. set tries a value, and get reads it back.
type attribute struct {
	name string
	from verbs.QPState
	try  []int64
	set  func(q *QP, v int64) error
	get  func(a verbs.QPAttr) int64
}

func rtrAttr(name string, try []int64, set func(*verbs.ToRTR, int64), get func(verbs.ToRTR) int64) attribute {
	return attribute{name, verbs.StateInit, try, func(q *QP, v int64) error {
		a := verbs.ToRTR{PathMTU: verbs.MTU1024}
		set(&a, v)
		return q.ToRTR(0, a)
	}, func(a verbs.QPAttr) int64 { return get(a.RTR) }}
}

func rtsAttr(name string, try []int64, set func(*verbs.ToRTS, int64), get func(verbs.ToRTS) int64) attribute {
	return attribute{name, verbs.StateRTR, try, func(q *QP, v int64) error {
		var a verbs.ToRTS
		set(&a, v)
		return q.ToRTS(0, a)
	}, func(a verbs.QPAttr) int64 { return get(a.RTS) }}
}

func modifyAttributes() []attribute {
	psn := []int64{0, 1, max24, max24 + 1}
	code := []int64{0, 1, 31, 32}
	count := []int64{0, 1, 7, 8}
	depth := []int64{-2, -1, 0, 1, maxRdAtomic, maxRdAtomic + 1}
	access := []int64{0}
	for bit := verbs.LocalWrite; bit <= verbs.MWBind; bit <<= 1 {
		access = append(access, int64(bit))
	}
	return []attribute{
		{
			"ToInit Access", verbs.StateReset, access,
			func(q *QP, v int64) error { return q.ToInit(verbs.ToInit{Access: verbs.Access(v)}) },
			func(a verbs.QPAttr) int64 { return int64(a.Init.Access) },
		},
		rtrAttr("ToRTR PathMTU", []int64{0, 128, 256, 512, 1000, 1024, 2048, 4096, 8192},
			func(a *verbs.ToRTR, v int64) { a.PathMTU = verbs.MTU(v) }, func(a verbs.ToRTR) int64 { return int64(a.PathMTU) }),
		rtrAttr("ToRTR DestQPN", psn, func(a *verbs.ToRTR, v int64) { a.DestQPN = wire.QPN(v) }, func(a verbs.ToRTR) int64 { return int64(a.DestQPN) }),
		rtrAttr("ToRTR RecvPSN", psn, func(a *verbs.ToRTR, v int64) { a.RecvPSN = wire.PSN(v) }, func(a verbs.ToRTR) int64 { return int64(a.RecvPSN) }),
		rtrAttr("ToRTR MinRNRTimer", code, func(a *verbs.ToRTR, v int64) { a.MinRNRTimer = uint8(v) }, func(a verbs.ToRTR) int64 { return int64(a.MinRNRTimer) }),
		rtrAttr("ToRTR MaxDestRdAtomic", depth, func(a *verbs.ToRTR, v int64) { a.MaxDestRdAtomic = int(v) }, func(a verbs.ToRTR) int64 { return int64(a.MaxDestRdAtomic) }),
		rtrAttr("ToRTR HopLimit", []int64{0, 1, 255}, func(a *verbs.ToRTR, v int64) { a.HopLimit = uint8(v) }, func(a verbs.ToRTR) int64 { return int64(a.HopLimit) }),
		rtsAttr("ToRTS SendPSN", psn, func(a *verbs.ToRTS, v int64) { a.SendPSN = wire.PSN(v) }, func(a verbs.ToRTS) int64 { return int64(a.SendPSN) }),
		rtsAttr("ToRTS Timeout", code, func(a *verbs.ToRTS, v int64) { a.Timeout = uint8(v) }, func(a verbs.ToRTS) int64 { return int64(a.Timeout) }),
		rtsAttr("ToRTS RetryCount", count, func(a *verbs.ToRTS, v int64) { a.RetryCount = uint8(v) }, func(a verbs.ToRTS) int64 { return int64(a.RetryCount) }),
		rtsAttr("ToRTS RNRRetry", count, func(a *verbs.ToRTS, v int64) { a.RNRRetry = uint8(v) }, func(a verbs.ToRTS) int64 { return int64(a.RNRRetry) }),
		rtsAttr("ToRTS MaxRdAtomic", depth, func(a *verbs.ToRTS, v int64) { a.MaxRdAtomic = int(v) }, func(a verbs.ToRTS) int64 { return int64(a.MaxRdAtomic) }),
	}
}

// For each service, the accepted attributes of a transition and the values that the queue pair uses
// are a golden file: values at the bounds are tried one by one on a new queue pair.
func TestModifyRules(t *testing.T) {
	var b strings.Builder
	for _, of := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		for _, at := range modifyAttributes() {
			fmt.Fprintf(&b, "%v %-22s", of, at.name)
			for _, v := range at.try {
				s := newSide(t, "a", 1, 64, Config{QPN: 0x11, Type: of})
				bringTo(t, s, at.from)
				switch err := at.set(s.qp, v); {
				case err != nil:
					fmt.Fprintf(&b, " %d:refused", v)
				case at.get(s.qp.Query()) != v:
					fmt.Fprintf(&b, " %d→%d", v, at.get(s.qp.Query()))
				default:
					fmt.Fprintf(&b, " %d", v)
				}
			}
			b.WriteByte('\n')
		}
	}
	golden.Check(t, "testdata/modify.golden", b.String())
}

// phaseTable prints the transitions that change the phase, one a line.
func phaseTable() string {
	var b strings.Builder
	for from := range phaseMoves {
		for e, to := range phaseMoves[from] {
			if to != phase(from) {
				fmt.Fprintf(&b, "%-9v %-14s → %v\n", phase(from), phaseEventNames[e], to)
			}
		}
	}
	return b.String()
}
