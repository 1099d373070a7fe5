package simrack

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// nthLost loses the packet with this offset to a queue pair, or of class if it is set, so often.
func nthLost(qpn wire.QPN, dir fault.Dir, class string, offset, times int) fault.Rule {
	return fault.Rule{Kind: fault.Loss, Dir: dir, Count: times, Match: fault.Match{QPN: &qpn, PSNOffset: &offset, Class: class}}
}

// U1 to U4: a lost packet of a WRITE gives one NAK that names it, a lost response one READ that begins with
// it, and the numbers of ACKs never fall. NICs of the paper take 2 us to 83 ms to send the NAK, and 2 us to
// hundreds of us to send again, and some longer for READs; here both take no time, for both opcodes.
func TestLuminaLoss(t *testing.T) {
	const lost, packets = 4, 10
	for _, op := range []verbs.WROpcode{verbs.OpWrite, verbs.OpRead} {
		l := lumina{qps: 1, op: op, bytes: packets * 1024, messages: 1}
		l.events = func(q []*luminaQP) map[string][]fault.Rule {
			if op == verbs.OpWrite {
				return map[string][]fault.Rule{"cn0": {nthLost(q[0].peer, fault.Up, "", lost, 1)}}
			}
			return map[string][]fault.Rule{"cn0": {nthLost(q[0].own, fault.Down, "", lost, 1)}}
		}
		res := l.run(t)
		q := res.qps[0]
		// detector is the NIC that sees the hole, sender the one that sends again.
		detector, sender, to := "ms0", "cn0", q.peer
		if op == verbs.OpRead {
			detector, sender, to = "cn0", "ms0", q.own
		}
		var first wire.PSN
		var seen, again, complaint clock.Time
		var complaints int
		last := wire.PSN(0)
		for i, p := range res.packets {
			switch data := p.DestQP == to; {
			case data && !p.sent && p.host == detector:
				if i == 0 || first == 0 {
					first = p.PSN
				}
				if wire.Diff(p.PSN, first) == lost+1 && seen == 0 {
					seen = p.at
				}
			case !data && p.sent && p.host == detector && (op == verbs.OpWrite && p.syndrome == wire.NakPSNSequence || op == verbs.OpRead && seen != 0 && p.Opcode == wire.RCReadRequest):
				complaints++
				complaint = p.at
				if wire.Diff(p.PSN, first) != lost {
					t.Errorf("%v: the NAK names packet %d, lost was %d", op, wire.Diff(p.PSN, first), lost)
				}
			case data && p.sent && p.host == sender && complaint != 0 && again == 0 && wire.Diff(p.PSN, first) == lost:
				again = p.at
			}
			if p.Opcode == wire.RCAck && p.sent && p.syndrome.IsAck() {
				if last != 0 && wire.Diff(p.PSN, last) < 0 {
					t.Errorf("%v: the ACK falls from %#x to %#x", op, uint32(last), uint32(p.PSN))
				}
				last = p.PSN
			}
		}
		const way = 2 * time.Microsecond // two links
		t.Logf("U1-U4: %v: NAK %v after the next packet arrived, sent again %v after the NAK was sent, %d NAKs", op, complaint.Sub(seen), again.Sub(complaint), complaints)
		if q.status != verbs.Success || complaints != 1 || complaint != seen || again.Sub(complaint) != way {
			t.Errorf("%v: %v, %d NAKs, hole seen at %v, NAK at %v, sent again at %v", op, q.status, complaints, seen, complaint, again)
		}
		// U8, U9: the counters are what the links have seen.
		want := metrics.NIC{PacketSeqErr: 1}
		if op == verbs.OpRead {
			want = metrics.NIC{ImpliedNakSeqErr: 1}
		}
		if c := res.client; c.PacketSeqErr != want.PacketSeqErr || c.ImpliedNakSeqErr != want.ImpliedNakSeqErr || c.LocalAckTimeoutErr != 0 {
			t.Errorf("U9: %v: packet_seq_err %d, implied_nak_seq_err %d, local_ack_timeout_err %d", op, c.PacketSeqErr, c.ImpliedNakSeqErr, c.LocalAckTimeoutErr)
		}
		// U12: a NAK is no reason for a CNP.
		if res.client.TxCnp+res.server.TxCnp+res.client.RxCnp+res.client.RxCnpIgnored != 0 {
			t.Errorf("U12: %v: a loss made CNPs", op)
		}
	}
}

// U5: two queue pairs have two queues of the NIC with half of the link each. When marks slow the first one,
// the second one uses what it leaves; a ConnectX-6 Dx leaves that unused.
func TestLuminaETS(t *testing.T) {
	const rate = 10_000_000_000
	rack := `
name: lumina
mtu: 1280
congestion: {rp_max_rate: 10Gbit}
switch:
  ports: {rate: 10Gbit, reaction: 0s}
  dscp: {3: 3, 4: 4, 48: 6}
  queues: {3: {weight: 50, limit: 8MiB}, 4: {weight: 50, limit: 8MiB}, 6: {strict: true}}
hosts:
  - {name: cn0, role: compute, rate: 10Gbit}
  - {name: ms0, role: memory}
`
	const messages, bytes = 20, 1 << 20
	run := func(marked bool) *luminaResult {
		l := lumina{rack: rack, qps: 2, op: verbs.OpWrite, bytes: bytes, messages: messages, opt: Options{Window: 512}}
		l.params = func(i int) rdmacm.Params {
			return rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: 14, TrafficClass: uint8(3+i)<<2 | 2}
		}
		l.events = func(q []*luminaQP) map[string][]fault.Rule {
			if !marked {
				return nil
			}
			return map[string][]fault.Rule{"ms0": {{Kind: fault.Mark, Dir: fault.Down, Probability: 1. / 50, Match: fault.Match{QPN: &q[0].peer}}}}
		}
		return l.run(t)
	}
	// shares returns what both have of the link until the first one is ready.
	shares := func(res *luminaResult) (out [2]float64) {
		end := min(res.qps[0].done, res.qps[1].done)
		const onWire = 1024 + 62 + 24.
		for i, q := range res.qps {
			n := 0
			for _, at := range q.bytes {
				if at <= end {
					n++
				}
			}
			out[i] = float64(n) * bytes / 1024 * onWire * 8 / end.Sub(q.begun).Seconds() / rate
		}
		return out
	}
	calm, slowed := shares(run(false)), shares(run(true))
	t.Logf("U5: shares of the link %.2f, with the first one marked %.2f", calm, slowed)
	if math.Abs(calm[0]-0.5) > 0.06 || math.Abs(calm[1]-0.5) > 0.06 {
		t.Errorf("without marks %.3f", calm)
	}
	if slowed[0] > 0.4 || slowed[1] < 0.95*(1-slowed[0])-1./messages {
		t.Errorf("with marks %.3f", slowed)
	}
}

// U6: 36 queue pairs READ 10 times 20 KB, and of i of them the fifth packet is lost. The others take as long
// as without losses; a ConnectX-4 Lx delays them by 430 ms from 12 queue pairs on.
func TestLuminaNoisyNeighbour(t *testing.T) {
	const all, lost = 36, 4
	times := func(noisy int) (list []time.Duration) {
		l := lumina{qps: all, op: verbs.OpRead, bytes: 20 << 10, messages: 10, opt: Options{Rate: 40_000_000_000, Queue: losslessQueue}}
		l.events = func(q []*luminaQP) map[string][]fault.Rule {
			var rules []fault.Rule
			for _, x := range q[:noisy] {
				rules = append(rules, nthLost(x.own, fault.Down, "", lost, 1))
			}
			return map[string][]fault.Rule{"cn0": rules}
		}
		for _, q := range l.run(t).qps {
			if q.status != verbs.Success {
				t.Errorf("%d noisy: a READ ended with %v", noisy, q.status)
			}
			list = append(list, q.done.Sub(q.begun))
		}
		return list
	}
	mean := func(list []time.Duration) time.Duration {
		sum := time.Duration(0)
		for _, d := range list {
			sum += d
		}
		return sum / time.Duration(len(list))
	}
	calm := times(0)
	for _, noisy := range []int{1, 8, 12, 16} {
		d, want := mean(times(noisy)[noisy:]), mean(calm[noisy:])
		t.Logf("U6: %d of %d queue pairs lose a packet: the others take %v, without losses %v", noisy, all, d, want)
		if math.Abs(d.Seconds()/want.Seconds()-1) > 0.05 {
			t.Errorf("%d noisy queue pairs: the others take %v, without them %v", noisy, d, want)
		}
	}
}

// U8, U10, U12: with every packet marked, CNPs leave as often as np_min_time_between_cnps allows, not one
// packet's time later; the counters of both ends are what the links have carried.
func TestLuminaCNPs(t *testing.T) {
	for _, interval := range []time.Duration{4 * time.Microsecond, 50 * time.Microsecond} {
		const rate = 10_000_000_000
		rack := fmt.Sprintf("congestion: {algorithm: none, profile: mlx, rp_max_rate: 10Gbit, np_min_time_between_cnps: %v}\n%s", interval, luminaRack)
		l := lumina{rack: rack, qps: 1, op: verbs.OpWrite, bytes: 1 << 20, messages: 2, opt: Options{Rate: rate}}
		l.events = func([]*luminaQP) map[string][]fault.Rule {
			return map[string][]fault.Rule{"ms0": {{Kind: fault.Mark, Dir: fault.Down, Match: fault.Match{Class: "request"}}}}
		}
		res := l.run(t)
		var marked, cnps, arrived uint64
		var before clock.Time
		packet := time.Duration((1024 + 62 + 24) * 8 * int64(time.Second) / rate)
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for _, p := range res.packets {
			switch {
			case p.host == "ms0" && !p.sent && p.marked:
				marked++
			case p.Opcode == wire.CNP && p.sent:
				if cnps++; cnps > 1 {
					least, most = min(least, p.at.Sub(before)), max(most, p.at.Sub(before))
				}
				before = p.at
			case p.Opcode == wire.CNP && p.host == "cn0":
				arrived++
			}
		}
		t.Logf("U8, U10: set to %v: %d CNPs, %v to %v apart", interval, cnps, least, most)
		if least < interval || most > interval+packet {
			t.Errorf("CNPs are %v to %v apart, set to %v with packets of %v", least, most, interval, packet)
		}
		if c, s := res.client, res.server; cnps < 10 || s.TxCnp != cnps || c.RxCnp+c.RxCnpIgnored != arrived || arrived != cnps || s.RxMarked != marked {
			t.Errorf("the links saw %d marked, %d CNPs sent, %d arrived; counters %d, %d, %d", marked, cnps, arrived, s.RxMarked, s.TxCnp, c.RxCnp+c.RxCnpIgnored)
		}
	}
}

// U13, U14: the last packet of a WRITE is lost at each try. A queue pair with retry count 7 and timeout 14 tries
// exactly 7 times more, each 4.096 us * 2^14 = 67.1 ms after the one before; NICs of the paper try 8 to 13
// times, with adaptive times of 4.1 to 134.2 ms.
func TestLuminaRetries(t *testing.T) {
	const packets, retries = 4, 7
	l := lumina{qps: 1, op: verbs.OpWrite, bytes: packets * 1024, messages: 1}
	l.params = func(int) rdmacm.Params {
		return rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: 14, RetryCount: retries}
	}
	l.events = func(q []*luminaQP) map[string][]fault.Rule {
		return map[string][]fault.Rule{"cn0": {nthLost(q[0].peer, fault.Up, "", packets-1, 0)}}
	}
	res := l.run(t)
	q := res.qps[0]
	var tries []clock.Time
	for _, p := range res.packets {
		if p.sent && p.DestQP == q.peer && p.Opcode == wire.RCWriteLast {
			tries = append(tries, p.at)
		}
	}
	timeout := 4096 * time.Nanosecond << 14
	if q.status != verbs.RetryExcErr || len(tries) != 1+retries {
		t.Fatalf("U13: %v after %d tries, want %d", q.status, len(tries), 1+retries)
	}
	for i := 1; i < len(tries); i++ {
		if d := tries[i].Sub(tries[i-1]); d != timeout {
			t.Errorf("U14: try %d is %v after the one before, want %v", i, d, timeout)
		}
	}
	t.Logf("U13, U14: %d retries, %v apart; it gave up after %v", len(tries)-1, timeout, q.done.Sub(q.begun))
	if d := q.done.Sub(q.begun); d < 8*timeout || d > 8*timeout+time.Millisecond {
		t.Errorf("U14: it gave up after %v", d)
	}
}
