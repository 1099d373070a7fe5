package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// forgedFirst is the first packet of a message of n bytes to a queue pair that does not exist.
func forgedFirst(r *rig, me int, qpn wire.QPN, va uint64, n uint32) []byte {
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(me), Dst: macOf(serverIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(me).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	f.BTH = wire.BTH{Opcode: wire.RCWriteFirst, PKey: wire.DefaultPKey, DestQP: qpn, PSN: 77}
	f.RETH = wire.RETH{VA: va, RKey: 1, Length: n}
	f.Payload = make([]byte, 1024)
	return f.AppendTo(nil)
}

// A host forges the first packet of a message of 4 GB to a queue pair that does not exist. This
// delays no client: the words of a server do not wait for a connection that the server has never
// answered.
func TestForgedLengthStopsNothing(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	for i := range maxStrange { // more words than such a connection may touch
		r.m.words.Get(r.now, atomiccache.Key{VA: r.server.base + 4096 + 8*uint64(i)})
	}
	before := r.m.Stats()
	for i := range 20 {
		r.launch(true, 1, forgedFirst(r, 2, wire.QPN(0xbad00+i), 0, 1<<32-1), false)
		r.launch(true, 1, forgedFirst(r, 2, wire.QPN(0xbad00+i), r.server.base&^0xffff, 1<<20), false)
		conns[0].post(conns[0].faa(64, 1, 0))
		r.run(time.Millisecond)
		conns[0].done(verbs.Success)
	}
	if s := r.m.Stats(); s.Replaced != before.Replaced+20 || s.Unadmitted == 0 {
		t.Errorf("%d of 20 atomics were replaced, %d forged messages refused", s.Replaced-before.Replaced, s.Unadmitted)
	}
}

// The search for words for connections that the server has never answered is rationed,
// independently of the number of words.
func TestScansAreRationed(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	s := r.m.servers[0]
	for i := range 20_000 {
		r.m.words.Get(r.now, atomiccache.Key{VA: uint64(i) << 20})
	}
	now, admitted := r.now, 0
	for range 1000 {
		now += clock.Time(time.Microsecond)
		if r.m.admits(now, s, 8<<20, 1<<28) { // some words in many pages
			admitted++
		}
	}
	if admitted == 0 || admitted > 10 {
		t.Errorf("%d of 1000 long looks were had within a millisecond", admitted)
	}
	if !r.m.admits(now.Add(time.Second), s, 8<<20, 1<<28) {
		t.Error("a second later there is nothing to be had")
	}
}
