package simrack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// Each message goes to one of xrcQueues shared receive queues. It is xrcLength bytes long, three packets.
	xrcMessages, xrcQueues, xrcLength = 120, 3, 2500
	xrcPSN                            = 0x123
	xrcStep                           = 10 * time.Millisecond // of virtual time, for what both ends do before they connect, and to connect
)

// xrcEnd is what the two ends tell each other before they connect: the addresses and numbers of the target and
// the initiator, and the numbers of the shared receive queues.
type xrcEnd struct {
	gid  [2]verbs.GID
	qpn  [2]wire.QPN
	srqs [xrcQueues]uint32
	key  uint32 // of the word behind the first queue
	addr uint64
}

// connectXRC brings a queue pair to RTS.
func connectXRC(t *testing.T, qp verbs.QP, gid verbs.GID, peer wire.QPN) {
	check(t, qp.ToInit(verbs.ToInit{Access: verbs.RemoteAtomic}))
	check(t, qp.ToRTR(verbs.ToRTR{DestGID: gid, DestQPN: peer, RecvPSN: xrcPSN, PathMTU: verbs.MTU1024, MinRNRTimer: 12}))
	check(t, qp.ToRTS(verbs.ToRTS{SendPSN: xrcPSN, Timeout: 10, RetryCount: 7, RNRRetry: 7}))
}

// xrcReceiver has a target and the shared receive queues. It expects the messages of each queue in order.
func xrcReceiver(t *testing.T, ctx verbs.Context, end *xrcEnd) {
	x, err := ctx.(verbs.XRCContext).AllocXRCD()
	check(t, err)
	cq, err := ctx.CreateCQ(256)
	check(t, err)
	target, err := x.CreateTarget(verbs.QPInit{Type: verbs.XRCTarget})
	check(t, err)
	var regions [xrcQueues]verbs.MR
	for i := range regions {
		pd, err := ctx.AllocPD() // a process of its own
		check(t, err)
		regions[i], err = pd.RegMR(nil, xrcMessages*xrcLength+8, verbs.LocalWrite|verbs.RemoteAtomic)
		check(t, err)
		srq, err := pd.CreateSRQ(verbs.SRQInit{XRCD: x, CQ: cq})
		check(t, err)
		for id := range xrcMessages {
			check(t, srq.PostRecv(verbs.RecvWR{ID: uint64(i)<<32 | uint64(id), SGL: []verbs.SGE{regions[i].SGE(id*xrcLength, xrcLength)}}))
		}
		a, err := srq.Query()
		check(t, err)
		end.srqs[i] = a.ID
	}
	end.gid[1], end.qpn[1] = ctx.Device().GIDs[0], target.QPN()
	end.key, end.addr = regions[0].RKey(), regions[0].Addr()+xrcMessages*xrcLength
	ctx.Runtime().Sleep(xrcStep)
	connectXRC(t, target, end.gid[0], end.qpn[0])
	var wc [1]verbs.WC
	var next [xrcQueues]uint64
	last := [xrcQueues]int64{-1, -1, -1}
	for range xrcMessages {
		check(t, cq.Wait(clock.Never))
		n, err := cq.Poll(wc[:])
		check(t, err)
		q := wc[0].ID >> 32
		if n != 1 || wc[0].Status != verbs.Success || q >= xrcQueues || wc[0].ID&0xffffffff != next[q] || wc[0].QPN != target.QPN() {
			t.Errorf("%d completions, %+v", n, wc)
			return
		}
		var b [xrcLength]byte
		check(t, regions[q].ReadAt(b[:], int(next[q])*xrcLength))
		next[q]++
		number := int64(binary.BigEndian.Uint64(b[:]))
		if number <= last[q] || uint64(number)%xrcQueues != q || b[xrcLength-1] != byte(number) {
			t.Errorf("queue %d: message %d behind %d", q, number, last[q])
		}
		last[q] = number
	}
	ctx.Runtime().Sleep(time.Second) // nothing comes twice
	if n, err := cq.Poll(wc[:]); n != 0 || err != nil {
		t.Errorf("one message too many: %+v, %v", wc, err)
	}
	if v, err := regions[0].Load64(xrcMessages * xrcLength); v != xrcMessages/xrcQueues || err != nil {
		t.Errorf("%d additions, %v", v, err)
	}
}

// xrcSender sends the messages, and adds 1 to the word of the first queue with each of its messages.
func xrcSender(t *testing.T, ctx verbs.Context, end *xrcEnd) {
	pd, err := ctx.AllocPD()
	check(t, err)
	cq, err := ctx.CreateCQ(256)
	check(t, err)
	mr, err := pd.RegMR(nil, xrcLength+8, verbs.LocalWrite)
	check(t, err)
	qp, err := pd.CreateQP(verbs.QPInit{Type: verbs.XRCInitiator, SendCQ: cq})
	check(t, err)
	end.gid[0], end.qpn[0] = ctx.Device().GIDs[0], qp.QPN()
	ctx.Runtime().Sleep(xrcStep)
	connectXRC(t, qp, end.gid[1], end.qpn[1])
	ctx.Runtime().Sleep(xrcStep)
	var wc [1]verbs.WC
	done := func() {
		check(t, cq.Wait(clock.Never))
		if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.Success {
			t.Errorf("%d completions, %+v, %v", n, wc, err)
		}
	}
	for i := range uint64(xrcMessages) {
		var b [xrcLength]byte
		binary.BigEndian.PutUint64(b[:], i)
		b[xrcLength-1] = byte(i)
		check(t, mr.WriteAt(b[:], 0))
		q := i % xrcQueues
		check(t, qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, xrcLength)}, RemoteSRQN: end.srqs[q]}))
		if q == 0 {
			check(t, qp.PostSend(verbs.SendWR{
				Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(xrcLength, 8)}, RemoteAddr: end.addr, RKey: end.key, CompareAdd: 1,
				RemoteSRQN: end.srqs[q],
			}))
			done()
		}
		done()
	}
}

// Messages by XRC arrive once and in order at each shared receive queue although links lose packets, also through a
// switch that moves requests of other connections: it passes XRC as it is.
func TestXRCWithLoss(t *testing.T) {
	const hosts = "\nhosts:\n  - {name: \"cn[0-1]\", role: compute}\n  - {name: ms0, role: memory}\n"
	for name, yaml := range map[string]string{
		"forward":  "name: xrc" + hosts,
		"swordbox": "name: xrc\nswitch:\n  program: swordbox\n  rules:\n    - {id: locks, server: ms0, action: atomics, shards: 2}" + hosts,
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				var file bytes.Buffer
				record, err := NewRecorder(&file)
				check(t, err)
				r := newRack(t, fmt.Sprintf("seed: %d\n%s", seed+1, yaml), Options{Trace: record.Record})
				for _, h := range []string{"cn0", "ms0"} {
					r.Host(h).SetFaults([]fault.Rule{{ID: h, Link: h, Dir: fault.Both, Kind: fault.Loss, Probability: 0.05}})
				}
				var end xrcEnd
				r.Host("ms0").Go("receiver", false, func(ctx verbs.Context) { xrcReceiver(t, ctx, &end) })
				r.Host("cn0").Go("sender", false, func(ctx verbs.Context) { xrcSender(t, ctx, &end) })
				if err := r.Run(); err != nil {
					t.Fatal(err)
				}
				check(t, record.Close())
				checkRecord(t, &file)
			})
		}
	}
}
