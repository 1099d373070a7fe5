package verbstest

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// group returns the address of a multicast group: of IPv4 or IPv6, as the NICs' GIDs number Family.
func (w *World) group(last byte) verbs.GID {
	if w.Contexts[0].Device().GIDs[w.Family].Addr().Is4() {
		return verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 7, 14: 0, 15: last}
	}
	return verbs.GID{0: 0xff, 1: 0x0e, 15: last}
}

// member makes a queue pair for datagrams and posts 4 receives of 200 bytes. Their buffers begin at
// offset off of the region, and their IDs are id, id+1 and so on.
func (e *end) member(id uint64, off int) verbs.QP {
	e.t.Helper()
	q := e.datagram(0)
	for i := range 4 {
		must(e.t, q.PostRecv(verbs.RecvWR{ID: id + uint64(i), SGL: []verbs.SGE{e.mr.SGE(off+i*200, 200)}}))
	}
	return q
}

// testMulticast sends to a group: each attached queue pair receives one copy, however often it was
// attached, also on the sending NIC, and none after it was detached.
func testMulticast(t *testing.T, w *World) {
	a, b := w.ends(t)
	group, other := w.group(1), w.group(2)
	sender, near := a.member(100, 0), a.member(200, 1000)
	far, second := b.member(300, 0), b.member(400, 1000)
	for _, q := range []verbs.QP{near, far, far, second} {
		must(t, q.AttachMulticast(group))
	}
	must(t, second.AttachMulticast(other))
	ah := need(a.pd.CreateAH(verbs.AHAttr{DestGID: group, SourceGID: w.Family}))(t)
	send := func(text string) {
		t.Helper()
		must(t, sender.PostSend(verbs.SendWR{
			ID: 1, Flags: verbs.Inline | verbs.Signalled, Data: []byte(text), AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: qkey,
		}))
	}
	// received checks that exactly the work requests with these IDs complete at an end. ID 1 is the
	// send; all others are receives, whose buffers are at the offsets in from.
	received := func(e *end, text string, from map[uint64]int, ids ...uint64) {
		t.Helper()
		for range ids {
			wc := e.next()
			if !slices.Contains(ids, wc.ID) || wc.Status != verbs.Success {
				t.Fatalf("completion %+v, want one of %v", wc, ids)
			}
			if wc.ID == 1 {
				continue
			}
			b := make([]byte, 200)
			must(t, e.mr.ReadAt(b, from[wc.ID]))
			g, err := verbs.ParseGRH(b)
			if err != nil || g.Dest != group || g.Source != a.ctx.Device().GIDs[w.Family] || wc.SrcQPN != sender.QPN() ||
				string(b[verbs.GRHLen:wc.ByteLen]) != text {
				t.Errorf("receive %d: %+v, %+v, %q", wc.ID, wc, g, b[verbs.GRHLen:wc.ByteLen])
			}
		}
		e.none()
	}
	at := map[uint64]int{100: 0, 200: 1000, 300: 0, 400: 1000, 301: 200, 401: 1200, 201: 1200}
	send("one for all")
	received(a, "one for all", at, 1, 200)
	received(b, "one for all", at, 300, 400)
	must(t, far.DetachMulticast(group))
	must(t, near.DetachMulticast(group))
	must(t, sender.AttachMulticast(group))
	send("and for its sender")
	received(a, "and for its sender", at, 1, 100)
	received(b, "and for its sender", at, 401)
	wantErr(t, "detach again", far.DetachMulticast(group), verbs.ErrInvalid)
	wantErr(t, "destroy while attached", sender.Destroy(), verbs.ErrBusy)
	must(t, sender.DetachMulticast(group))
	must(t, sender.Destroy())
	wantErr(t, "attach what is destroyed", sender.AttachMulticast(group), verbs.ErrClosed)
	wantErr(t, "detach what is destroyed", sender.DetachMulticast(group), verbs.ErrClosed)
	rc := a.qp(verbs.RC, nil)
	wantErr(t, "a connection", rc.AttachMulticast(group), verbs.ErrInvalid)
	wantErr(t, "a unicast address", near.AttachMulticast(a.ctx.Device().GIDs[0]), verbs.ErrInvalid)
	must(t, b.ctx.Close()) // a context with attached queue pairs can be closed
}

// testManyGroups attaches a queue pair to groups until the NIC, or the program's quota, refuses. It
// detaches it from all groups, and does the same again.
func testManyGroups(t *testing.T, w *World) {
	a := w.end(t, 0)
	q := a.datagram(0)
	gid := func(i int) verbs.GID {
		g := w.group(byte(i))
		g[14] = byte(i >> 8)
		return g
	}
	most := a.ctx.Device().MaxAttachments
	for range 2 {
		n := 0
		for ; n <= most; n++ {
			if err := q.AttachMulticast(gid(n)); err != nil {
				wantErr(t, "one more", err, verbs.ErrLimit)
				break
			}
		}
		expect(t, n == most, "%d attachments, the device says %d", n, most)
		for i := range n {
			must(t, q.DetachMulticast(gid(i)))
		}
	}
	must(t, q.Destroy())
}
