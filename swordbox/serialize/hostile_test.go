package serialize

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var hostileSeeds = flag.Int("hostile-seeds", 20, "how many seeds of hostile frames")

// forge changes a recorded frame into a hostile one: with the address of the hostile host or of
// another one, to any queue pair that was ever seen, with PSNs near the true ones. It never names a
// valid R_Key, because a host that has one may use it.
func forge(r *rand.Rand, data []byte, me int, qpns []wire.QPN) []byte {
	f := parse(data)
	f.Eth.Src = macOf(me)
	switch r.IntN(4) {
	case 0: // with the address of the true sender
	case 1:
		f.Eth.Dst, f.IPv4.Dst = macOf(switchIP), ipOf(switchIP).As4()
		f.IPv4.Src = ipOf(me).As4()
	default:
		f.Eth.Dst, f.IPv4.Dst = macOf(serverIP), ipOf(serverIP).As4()
		f.IPv4.Src = ipOf(me).As4()
	}
	if r.IntN(2) == 0 {
		f.BTH.DestQP = qpns[r.IntN(len(qpns))]
	}
	if r.IntN(2) == 0 {
		f.BTH.PSN = f.BTH.PSN.Add(r.IntN(40) - 20)
	}
	if r.IntN(4) == 0 {
		f.BTH.Opcode = wire.Opcode(r.IntN(0x18))
	}
	if r.IntN(3) == 0 {
		f.AETH.Syndrome = []wire.Syndrome{wire.AckNoCredits, wire.NakPSNSequence, wire.NakRemoteAccess, wire.NakRemoteOp, wire.RNRNak | 1}[r.IntN(5)]
	}
	if r.IntN(8) == 0 {
		f.Payload = make([]byte, r.IntN(1100))
	}
	f.RETH.RKey ^= 0x1111
	f.AtomicETH.RKey ^= 0x1111
	out := f.AppendTo(nil)
	if r.IntN(20) == 0 { // damaged on the link
		out[14+r.IntN(len(out)-14)] ^= byte(1 + r.IntN(255))
	}
	return out
}

// A hostile host sends recorded frames, changed at random, on its own connections and with other
// hosts' addresses. The other clients are not disturbed, and refused packets are counted.
func TestHostileHost(t *testing.T) {
	for seed := range uint64(*hostileSeeds) {
		t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) { hostile(t, seed+1) })
	}
}

func hostile(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 12))
	rc := rigConfig{seed: seed, clients: 3, rules: atomicsRule(1)}
	if seed%3 == 0 {
		rc.rules = moveRule(1)
	}
	w := newWorld(t, rc, allMix, 80, 1+r.IntN(6))
	evil := w.users[2]
	w.users = w.users[:2]
	evil.n.dead = true // the NIC of this host is off; the test makes its frames
	var seen [][]byte
	qpns := []wire.QPN{evil.server.Num()}
	w.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); len(seen) < 400 && up && port != evil.n.port {
			seen = append(seen, bytes.Clone(data))
			qpns = append(qpns, f.BTH.DestQP)
		}
		return true
	}
	sent := 0
	w.extra = func() {
		if len(seen) < 10 || sent > 1500 {
			return
		}
		for range r.IntN(4) {
			sent++
			tap := w.tap
			w.tap = nil
			w.launch(true, evil.n.port, forge(r, seen[r.IntN(len(seen))], evil.n.port+1, qpns), false)
			w.tap = tap
		}
	}
	if *traceFlag >= 0 {
		w.tap2 = func(up bool, port int, data []byte) {
			f := parse(data)
			fmt.Printf("%v up=%v port %d %v icrc %v\n", w.now, up, port, &f, wire.CheckICRC(data))
		}
	}
	w.drive(20 * time.Second)
	refused := 0
	for _, n := range w.g.bad {
		refused += n
	}
	if s := w.m.Stats(); sent < 100 || refused == 0 || s.Strangers == 0 || s.LinkFailures != 0 {
		t.Errorf("%d sent, %d refused by tracking, %+v", sent, refused, s)
	}
	if t.Failed() {
		t.Logf("%s", w.state())
		t.Logf("replay: go test ./swordbox/serialize -run TestHostileHost/seed=%d", seed)
	}
}
