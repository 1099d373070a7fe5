package simrack

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// loadSeeds is the number of seeds.
const loadSeeds = 20

// loadRun is a client that adds to a word, one FAA after the other, until the test stops it.
type loadRun struct {
	*restartRun
	stop bool
	adds uint64
	// pause is the largest time between two additions.
	pause time.Duration
}

// work connects, and adds until stop is set.
func (l *loadRun) work(ctx verbs.Context) error {
	rt, h := ctx.Runtime(), l.r.Host("cn0")
	rt.Sleep(5 * time.Millisecond)
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(1)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, 8, verbs.LocalWrite)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return err
	}
	private, err := h.ConnManager(ctx).Dial(qp, l.r.Host("ms0").Addr(), restartService, rdmacm.Params{}, nil, rt.Now().Add(5*time.Second))
	if err != nil {
		return err
	}
	addr, key := binary.BigEndian.Uint64(private), binary.BigEndian.Uint32(private[8:])
	for !l.stop {
		err := qp.PostSend(verbs.SendWR{
			Op: verbs.OpFetchAdd, Flags: verbs.Signalled, CompareAdd: 1, RemoteAddr: addr + addAt, RKey: key, SGL: []verbs.SGE{mr.SGE(0, 8)},
		})
		if err == nil {
			err = cq.Wait(rt.Now().Add(time.Minute))
		}
		var wcs [1]verbs.WC
		if err == nil {
			_, err = cq.Poll(wcs[:])
		}
		if err == nil && wcs[0].Status != verbs.Success {
			err = errors.New(wcs[0].Status.String())
		}
		if err != nil {
			return err
		}
		l.adds++
		if l.pause > 0 {
			rt.Sleep(time.Duration(rt.Rand().Int64N(int64(l.pause))))
		}
	}
	return nil
}

// A program is loaded, and gets its rule, while a client on an older connection adds to a word. The
// client's requests move once the table of flows has settled (conntrack.Config.Settle, 30 s), for
// any loss and any pace of the client, and the client gets no error.
func TestProgramIsLoadedUnderAtomics(t *testing.T) {
	for seed := uint64(1); seed <= loadSeeds; seed++ {
		d := rand.New(rand.NewPCG(seed, 11))
		l := &loadRun{restartRun: &restartRun{t: t, added: make(map[uint64]bool), errors: make(map[verbs.Status]int)}}
		l.pause = []time.Duration{time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond}[d.IntN(3)]
		l.r = newRack(t, `
name: load
switch: {program: forward}
hosts:
  - {name: "cn0", role: compute}
  - {name: ms0, role: memory}
`, Options{Seed: seed, Datagrams: true})
		if d.IntN(2) == 0 {
			for _, h := range l.r.Hosts() {
				h.SetFaults([]fault.Rule{{Link: h.Spec.Name, Kind: fault.Loss, Probability: 0.01}, {Link: h.Spec.Name, Kind: fault.Duplicate, Probability: 0.01}})
			}
		}
		l.r.Host("ms0").Go("server", true, l.serve)
		var failed error
		l.r.Host("cn0").Go("client", false, func(ctx verbs.Context) { failed = l.work(ctx) })
		fail := func(err error) {
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		at := clock.Time(20*time.Millisecond) + clock.Time(d.Int64N(int64(time.Millisecond)))
		l.r.At(at, func() { fail(l.r.LoadProgram("swordbox", &rules.Set{})) })
		at = at.Add(time.Duration(d.Int64N(int64(30 * time.Millisecond))))
		l.r.At(at, func() {
			rule, err := rules.Parse("id=locks server=ms0 action=atomics")
			if err == nil {
				err = rule.Resolve(l.r.Spec.Addresses)
			}
			fail(err)
			set, err := rules.NewSet([]rules.Rule{rule})
			fail(err)
			p := programOf(t, l.r)
			fail(p.SetRules(set))
			l.r.StepSwitch(p.Tick)
		})
		var moved uint64
		l.r.At(at.Add(32*time.Second), func() {
			p, _ := l.r.Program().(*swordbox.Program)
			for _, h := range p.Report(l.r.Now()).Handlers {
				for _, f := range h.Flows {
					moved += f.Moved
				}
			}
			l.stop = true
		})
		fail(l.r.Run())
		if sum, err := l.mr.Load64(addAt); failed != nil || err != nil || sum != l.adds || moved == 0 {
			t.Errorf("seed %d, pause %v: client: %v; %d additions made %d, %v; %d requests moved", seed, l.pause, failed, l.adds, sum, err, moved)
		}
	}
}
