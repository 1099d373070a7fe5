package transport

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// notedCase makes something go wrong between a and b, and has what each then notes: the texts, in
// order, with the values in braces filled in from the regions.
type notedCase struct {
	name string
	make func(t *testing.T, a, b *side)
	a, b []string
}

func (c *notedCase) check(t *testing.T, a, b *side) {
	fill := strings.NewReplacer(
		"{rkey}", fmt.Sprintf("%#x", b.mem.RKey()), "{base}", fmt.Sprintf("%#x", b.mem.Base()), "{last}", fmt.Sprintf("%#x", b.mem.Base()+1<<16-1),
		"{end}", fmt.Sprintf("%#x", b.mem.Base()+1<<16), "{lkey}", fmt.Sprintf("%#x", a.mem.LKey()), "{own}", fmt.Sprintf("%#x", a.mem.Base()),
		"{ownlast}", fmt.Sprintf("%#x", a.mem.Base()+1<<16-1), "{blkey}", fmt.Sprintf("%#x", b.mem.LKey()))
	for _, x := range []struct {
		s    *side
		want []string
	}{{a, c.a}, {b, c.b}} {
		var got []string
		for _, n := range x.s.qp.Notes().All() {
			got = append(got, n.String())
		}
		want := make([]string, len(x.want))
		for i := range want {
			want[i] = fill.Replace(x.want[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s notes\n  %s\nwant\n  %s", x.s.name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

// write posts a WRITE of n bytes with wr_id 7 to offset off of b's region.
func write(t *testing.T, a, b *side, off, n int) {
	t.Helper()
	wr := writeTo(b)
	wr.ID, wr.RemoteAddr, wr.SGL = 7, wr.RemoteAddr+uint64(off), []verbs.SGE{a.sge(0, n)}
	post(t, a, wr)
}

// drop removes packet i that s is about to send.
func drop(s *side, i int) { s.out.Tx = slices.Delete(s.out.Tx, i, i+1) }

// later settles after the next deadline of a.
func later(t *testing.T, a, b *side) {
	t.Helper()
	at := a.qp.Deadline()
	a.qp.Tick(at, &a.out)
	settle(t, at, a, b)
}

var notedCases = []notedCase{
	{
		name: "WRITE beyond the region",
		make: func(t *testing.T, a, b *side) { write(t, a, b, 1<<16, 8); settle(t, 0, a, b) },
		a:    []string{"WRITE 1 failed: remote access error, because the peer answered with NAK remote access error to PSN 256"},
		b:    []string{"refused RC_WRITE_ONLY with PSN 256 by NAK_REM_ACCESS, because R_Key {rkey} of region 1 covers {base} to {last}, and the request asks for 8 bytes at {end}"},
	},
	{
		name: "unknown R_Key",
		make: func(t *testing.T, a, b *side) {
			wr := writeTo(b)
			wr.RKey, wr.SGL = 0x1200, []verbs.SGE{a.sge(0, 8)}
			post(t, a, wr)
			settle(t, 0, a, b)
		},
		a: []string{"WRITE 1 failed: remote access error, because the peer answered with NAK remote access error to PSN 256"},
		b: []string{"refused RC_WRITE_ONLY with PSN 256 by NAK_REM_ACCESS, because no region has R_Key 0x1200"},
	},
	{
		name: "deregistered region",
		make: func(t *testing.T, a, b *side) {
			if err := b.env.Mem.Dereg(b.mem); err != nil {
				t.Fatal(err)
			}
			write(t, a, b, 0, 8)
			settle(t, 0, a, b)
		},
		a: []string{"WRITE 1 failed: remote access error, because the peer answered with NAK remote access error to PSN 256"},
		b: []string{"refused RC_WRITE_ONLY with PSN 256 by NAK_REM_ACCESS, because R_Key {rkey} was that of region 1, which is deregistered, invalidated or not bound"},
	},
	{
		name: "missing right",
		make: func(t *testing.T, a, b *side) {
			if err := b.env.Mem.Rereg(b.mem, verbs.LocalWrite|verbs.RemoteRead); err != nil {
				t.Fatal(err)
			}
			write(t, a, b, 0, 8)
			settle(t, 0, a, b)
		},
		a: []string{"WRITE 1 failed: remote access error, because the peer answered with NAK remote access error to PSN 256"},
		b: []string{"refused RC_WRITE_ONLY with PSN 256 by NAK_REM_ACCESS, because R_Key {rkey} of region 1 allows local write, remote read, and the request needs remote write"},
	},
	{
		name: "operation not enabled",
		make: func(t *testing.T, a, b *side) {
			l := defaultLink
			l.access = verbs.RemoteRead
			reconnect(t, a, b, l)
			write(t, a, b, 0, 8)
			settle(t, 0, a, b)
		},
		a: []string{"WRITE 1 failed: remote invalid request error, because the peer answered with NAK invalid request to PSN 256"},
		b: []string{"refused RC_WRITE_ONLY with PSN 256 by NAK_INV_REQ, because RC_WRITE_ONLY needs remote write, and the queue pair allows its peer remote read"},
	},
	{
		name: "SEND longer than the receive",
		make: func(t *testing.T, a, b *side) { recvOf(t, b, 10); sendOf(t, a, b, 11) },
		a:    []string{"SEND 1 failed: remote invalid request error, because the peer answered with NAK invalid request to PSN 256"},
		b:    []string{"refused RC_SEND_ONLY with PSN 256 by NAK_INV_REQ, because the message has 11 bytes or more, and the receive has room for 10"},
	},
	{
		name: "SEND that invalidates a key that it may not",
		make: func(t *testing.T, a, b *side) {
			recvOf(t, b, 10)
			post(t, a, verbs.SendWR{Op: verbs.OpSendInv, InvRKey: b.mem.RKey(), SGL: []verbs.SGE{a.sge(0, 8)}})
			settle(t, 0, a, b)
		},
		a: []string{"SEND_INV 1 failed: remote access error, because the peer answered with NAK remote access error to PSN 256"},
		b: []string{"refused RC_SEND_ONLY_INV with PSN 256 by NAK_REM_ACCESS, because the SEND invalidates a key, and R_Key {rkey} of region 1 can only be deregistered: it is neither that of a fast registration nor that of a window of type 2"},
	},
	{
		name: "local memory",
		make: func(t *testing.T, a, b *side) {
			wr := writeTo(b)
			wr.SGL = []verbs.SGE{a.sge(0, 4), a.sge(1<<16-5, 10)}
			post(t, a, wr)
			post(t, a, writeTo(b))
		},
		a: []string{"WRITE 1 failed: local protection error, because L_Key {lkey} of region 1 covers {own} to {ownlast}, and the work request asks for 10 bytes at {at}"},
	},
	{
		name: "no READs allowed",
		make: func(t *testing.T, a, b *side) {
			l := defaultLink
			l.rts.MaxRdAtomic = -1
			reconnect(t, a, b, l)
			post(t, a, verbs.SendWR{Op: verbs.OpRead, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(), SGL: []verbs.SGE{a.sge(0, 10)}})
		},
		a: []string{"READ 1 failed: local QP operation error, because the queue pair may have no READ or atomic in flight: max_rd_atomic was 0 at RTS"},
	},
	{
		name: "a lost packet in the middle",
		make: func(t *testing.T, a, b *side) {
			write(t, a, b, 0, 1024)
			drop(a, 1)
			settle(t, 1000, a, b)
		},
		a: []string{
			"a sequence NAK says that packet 2 of 4 of WRITE 1 (PSN 257) is missing: PSNs 257 to 259 sent again (6 of 7 retries left)",
			"packet 2 of 4 of WRITE 1 (PSN 257) is acknowledged after 1 retry and 0s: healed; 3 packets were sent again by then",
		},
		b: []string{"PSN 257 did not arrive before RC_WRITE_MIDDLE with PSN 258: a sequence NAK asked for PSN 257; 2 packets were dropped behind the gap"},
	},
	{
		name: "a lost last packet",
		make: func(t *testing.T, a, b *side) {
			write(t, a, b, 0, 512)
			drop(a, 1)
			settle(t, 0, a, b)
			later(t, a, b)
		},
		a: []string{
			"no answer to packet 1 of 2 of WRITE 1 (PSN 256) within 67.1ms: PSNs 256 to 257 sent again (6 of 7 retries left)",
			"packet 1 of 2 of WRITE 1 (PSN 256) is acknowledged after 1 retry and 0s: healed; 2 packets were sent again by then",
		},
		b: []string{"PSN 256 arrived again, though executed before: answered again, not executed again"},
	},
	{
		name: "a lost ACK",
		make: func(t *testing.T, a, b *side) {
			write(t, a, b, 0, 8)
			a.deliver(0, b)
			drop(b, 0)
			settle(t, 0, a, b)
			later(t, a, b)
		},
		a: []string{
			"no answer to packet 1 of 1 of WRITE 1 (PSN 256) within 67.1ms: PSN 256 sent again (6 of 7 retries left)",
			"packet 1 of 1 of WRITE 1 (PSN 256) is acknowledged after 1 retry and 0s: healed; 1 packet was sent again by then",
		},
		b: []string{"PSN 256 arrived again, though executed before: answered again, not executed again"},
	},
	{
		name: "a lost response of a READ",
		make: func(t *testing.T, a, b *side) {
			post(t, a, verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(), SGL: []verbs.SGE{a.sge(0, 700)}})
			a.deliver(0, b)
			drop(b, 1)
			settle(t, 0, a, b)
		},
		a: []string{
			"a later response arrived, and that to response 2 of 3 of READ 1 (PSN 257) did not: PSNs 257 to 258 sent again (6 of 7 retries left)",
			"response 2 of 3 of READ 1 (PSN 257) is acknowledged after 1 retry and 0s: healed; 1 packet was sent again by then",
		},
		b: []string{"PSN 257 arrived again, though executed before: answered again, not executed again"},
	},
	{
		name: "no receive, then one",
		make: func(t *testing.T, a, b *side) {
			sendOf(t, a, b, 8)
			later(t, a, b)
			recvOf(t, b, 8)
			later(t, a, b)
		},
		a: []string{
			"an RNR NAK says that the peer has no receive for PSN 256; wait 640µs: PSN 256 sent again (retries without limit)",
			"an RNR NAK says that the peer has no receive for PSN 256; wait 640µs: PSN 256 sent again (retries without limit)",
			"packet 1 of 1 of SEND 1 (PSN 256) is acknowledged after 2 retries and 1.28ms: healed; 2 packets were sent again by then",
		},
		b: []string{"RC_SEND_ONLY with PSN 256 found no receive, 2 times: RNR NAK, come back after 640µs"},
	},
	{
		name: "retries exceeded",
		make: func(t *testing.T, a, b *side) {
			l := defaultLink
			l.rts.RetryCount = 1
			reconnect(t, a, b, l)
			write(t, a, b, 0, 512)
			expire(t, a)
		},
		a: []string{
			"no answer to packet 1 of 2 of WRITE 1 (PSN 256) within 67.1ms: PSNs 256 to 257 sent again (0 of 1 retries left)",
			"WRITE 1 failed: transport retry counter exceeded, because no answer came within the ACK timeout, and retry_cnt repetitions changed nothing; " +
				"it waited for packet 1 of 2 of WRITE 1 (PSN 256), sent up to PSN 257, after 1 retry of 67.1ms each",
		},
	},
	{
		name: "the program ends the queue pair",
		make: func(t *testing.T, a, b *side) {
			if err := a.qp.ToError(0, &a.out); err != nil {
				t.Fatal(err)
			}
		},
		a: []string{"went to ERROR, because the program moved the queue pair to ERROR (ibv_modify_qp, rdma_disconnect, the end of the program)"},
	},
}

// Each case that retransmits, refuses or fails leaves its reason, on the side that knows it.
func TestNotes(t *testing.T) {
	for _, c := range notedCases {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t)
			c.make(t, a, b)
			a.file()
			b.file()
			for i := range c.a {
				c.a[i] = strings.ReplaceAll(c.a[i], "{at}", fmt.Sprintf("%#x", a.mem.Base()+1<<16-5))
			}
			c.check(t, a, b)
		})
	}
}

// The completion that fails has the reason's number, the flushed ones behind it that of the queue
// pair's end.
func TestVendorErr(t *testing.T) {
	a, b := newPair(t)
	write(t, a, b, 1<<16, 8)
	write(t, a, b, 0, 8)
	recvOf(t, b, 10)
	settle(t, 0, a, b)
	var wc [3]verbs.WC
	if n := a.scq.Poll(wc[:]); n != 2 || wc[0].VendorErr != uint32(reason.PeerAccess) || wc[1].VendorErr != uint32(reason.AfterFailure) {
		t.Errorf("%d completions of sends: %+v", n, wc[:n])
	}
	if r := onlyWC(t, b.rcq); r.VendorErr != uint32(reason.AfterRefusal) {
		t.Errorf("the flushed receive has reason %#x", r.VendorErr)
	}
	end, ok := b.qp.Notes().End()
	if !ok || end.Code != reason.RemoteBounds || end.Mem.Fault != mem.BadBounds {
		t.Errorf("the end of b: %+v, %v", end, ok)
	}
	if err := b.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.qp.Notes().End(); ok {
		t.Error("the end is that of the connection before RESET")
	}
}

// A work request knows when it was posted.
func TestPostedAt(t *testing.T) {
	a, b := newPair(t)
	wr := writeTo(b)
	wr.RKey, wr.SGL = 1, []verbs.SGE{a.sge(0, 8)}
	if err := a.qp.PostSend(5000, &wr, &a.out); err != nil {
		t.Fatal(err)
	}
	settle(t, 9000, a, b)
	if end, ok := a.qp.Notes().End(); !ok || end.At != 9000 || end.Since != 5000 || end.WR.ID != 1 || end.WR.RKey != 1 {
		t.Errorf("%+v, %v", end, ok)
	}
}

// However much is lost, a queue pair keeps reason.Kept notes, the newest ones, and allocates their
// memory once.
func TestNotesAreBounded(t *testing.T) {
	a, b := newPair(t)
	now := clock.Time(0)
	lose := func() {
		now = now.Add(time.Millisecond)
		wr := writeTo(b)
		wr.SGL = []verbs.SGE{a.sge(0, 1024)}
		if err := a.qp.PostSend(now, &wr, &a.out); err != nil {
			t.Fatal(err)
		}
		drop(a, 1)
		settle(t, now, a, b)
		a.scq.Poll(make([]verbs.WC, 1))
	}
	for range 3 * reason.Kept {
		lose()
	}
	all := a.qp.Notes().All()
	if len(all) != reason.Kept || all[reason.Kept-1].WR.Number != 3*reason.Kept || a.qp.Notes().Totals.Healed != 3*reason.Kept {
		t.Errorf("%d notes, the newest of %v; totals %+v", len(all), all[len(all)-1].WR, a.qp.Notes().Totals)
	}
	if !slices.IsSortedFunc(all, func(x, y reason.Note) int { return int(x.At - y.At) }) {
		t.Error("the notes are not in order")
	}
	if n := a.qp.Notes().Newest(); n.At != now || n.Kind != reason.Healed || n.First != wire.PSN(0x100+4*(3*reason.Kept-1)+1) {
		t.Errorf("the newest: %v", n)
	}
}
