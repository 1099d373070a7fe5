package lookuptable

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// patient is a Server whose lookups and changes wait until the test answers them.
type patient struct {
	table   *Table
	up      bool
	entries map[Key]Action
	frames  []Lookup
	data    []packetio.Frame
	changes []change
	scans   []int
	page    *Page
}

func (k *patient) Use(t *Table, _ int)                         { k.table, k.frames, k.data, k.changes = t, nil, nil, nil }
func (k *patient) InFlight() int                               { return len(k.frames) }
func (k *patient) Cells() int                                  { return len(k.frames) }
func (k *patient) Work(*pipeline.Ctx)                          {}
func (k *patient) Up() bool                                    { return k.up }
func (k *patient) Begin(*switchconn.Shared, memgrant.Grant)    { k.up = true }
func (k *patient) End(*pipeline.Ctx)                           { k.up = false }
func (k *patient) Packet(*pipeline.Ctx, *pipeline.Parsed) bool { return true }
func (k *patient) Tick(*pipeline.Ctx)                          {}
func (k *patient) Deadline() clock.Time                        { return clock.Never }
func (k *patient) Waiting() int                                { return len(k.changes) }
func (k *patient) Scan(from int)                               { k.scans = append(k.scans, from) }
func (k *patient) Page() *Page                                 { return k.page }
func (k *patient) Busy(h uint64) bool {
	return slices.ContainsFunc(k.frames, func(l Lookup) bool { return l.Hash == h })
}

func (k *patient) Change(e *Entry, _ uint64, remove bool) bool {
	k.changes = append(k.changes, change{Entry: *e, remove: remove})
	return len(k.changes) <= 3
}

func (k *patient) Bounce(_ *pipeline.Ctx, in int, f packetio.Frame, key *Key, h uint64) bool {
	k.frames = append(k.frames, Lookup{Key: *key, Hash: h, In: in, changes: k.table.changes})
	f.Data = slices.Clone(f.Data)
	k.data = append(k.data, f)
	return true
}

// answer answers all lookups and makes all changes.
func (k *patient) answer(c *pipeline.Ctx) {
	frames, data := k.frames, k.data
	k.frames, k.data = nil, nil
	for i := range frames {
		frames[i].Found = Miss
		if a, ok := k.entries[frames[i].Key]; ok {
			frames[i].Found, frames[i].Action = Hit, a
		}
		k.table.Done(c, &frames[i], data[i])
	}
	for _, x := range k.changes {
		if k.entries[x.Key] = x.Action; x.remove {
			delete(k.entries, x.Key)
		}
		k.table.Changed(&x.Key, x.remove)
	}
	k.changes = nil
}

// bed is a switch with a machine that looks up what comes in at port 1, from cn0.
type bed struct {
	t          *testing.T
	sw         *pipeline.Switch
	m          *Machine
	servers    []*patient
	generation uint32
	r          *rand.Rand
	missed     uint64 // how many packets without an entry the rule drops
}

type noProgram struct{}

func (noProgram) Spec() pipeline.Spec                                     { return pipeline.Spec{} }
func (noProgram) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (noProgram) Tick(*pipeline.Ctx)                                      {}
func (noProgram) Deadline() clock.Time                                    { return clock.Never }

const portOfHost = 1

func newBed(t *testing.T, rule string) *bed {
	t.Helper()
	b := &bed{t: t, r: rand.New(rand.NewPCG(3, 3))}
	var err error
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 3, Program: noProgram{}}); err != nil {
		t.Fatal(err)
	}
	b.m = New(Config{
		Kind: &Kind, Port: func(netip.Addr) int { return portOfHost }, MAC: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{2, 9}, true },
		Server: func(*Link, uint32) Server {
			k := &patient{entries: make(map[Key]Action)}
			b.servers = append(b.servers, k)
			return k
		},
	})
	b.rule(rule)
	return b
}

// rule replaces the rules by one for cn0; "": none.
func (b *bed) rule(text string) {
	b.t.Helper()
	set := &rules.Set{}
	if text != "" {
		var err error
		if set, err = ruleSet(b.t, "id=r server=cn0 action=lookup "+text); err != nil {
			b.t.Fatal(err)
		}
	}
	b.m.SetRules(set)
	for _, l := range slices.Clone(b.m.Links.All) {
		if l.Needed() && !l.Connected() {
			b.attach(l, 64<<20)
		}
	}
}

// attach offers a connection to a server with size bytes of memory.
func (b *bed) attach(l *Link, size int) (ok bool) {
	g := memgrant.Grant{Region: memgrant.Region{Len: size}}
	b.generation++
	s := switchconn.Shared{
		Key: l.Key(), Generation: b.generation, OwnQPN: wire.QPN(0x10 + b.generation), MTU: 4096,
		Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	b.step(func(c *pipeline.Ctx) { ok = b.m.Attach(c, s) })
	return ok
}

// step runs a step and returns how many frames have left. The sum of the counters must hold after it.
func (b *bed) step(f func(c *pipeline.Ctx)) int {
	b.t.Helper()
	var out packetio.Batch
	b.sw.Step(clock.Time(time.Second), &out, f)
	s := b.m.Stats()
	if sum := s.Cached + s.Hits + s.Misses + uint64(b.m.InFlight()) + s.Torn + s.Unfit + s.Lost + s.Full + s.Blocked + s.Long; sum != s.Frames {
		b.t.Fatalf("%d frames, and the counters say where %d are: %+v", s.Frames, sum, s)
	}
	dropped := s.Denied + s.Torn + s.Unfit + s.Full + s.Blocked + s.Long + b.missed
	for _, n := range b.sw.Port(portOfHost).Drops {
		dropped -= n
	}
	if dropped != 0 {
		b.t.Fatalf("dropped by reason at the port: %v, want those of %+v and %d misses", b.sw.Port(portOfHost).Drops, s, b.missed)
	}
	return len(out.Frames)
}

// packets offers copies of a packet from cn0 and returns how many the machine has taken, and whether one
// has left at once.
func (b *bed) packets(n int, data []byte) (taken int, left bool) {
	b.t.Helper()
	out := b.step(func(c *pipeline.Ctx) {
		for range n {
			if b.m.Take(c, portOfHost, packetio.Frame{Data: slices.Clone(data)}) {
				taken++
			}
		}
	})
	return taken, out > 0
}

func flowOf(data []byte) Key {
	var v view
	v.parse(data)
	return v.key(data, true)
}

// counters returns some counters of the machine.
func (b *bed) counters() string {
	s := b.m.Stats()
	return fmt.Sprintf("%d frames, %d cached, %d hits, %d misses, %d denied, %d unfit, %d lost", s.Frames, s.Cached, s.Hits, s.Misses, s.Denied, s.Unfit, s.Lost)
}

func (b *bed) want(counters string) {
	b.t.Helper()
	if got := b.counters(); got != counters {
		b.t.Errorf("%s; want %s", got, counters)
	}
}

// An entry that was found is in the cache from then on, but a key with packets in flight is not looked
// up there.
func TestCache(t *testing.T) {
	b := newBed(t, "table=ms0 cache=4")
	k, data := b.servers[0], packet(b.r, false, protoTCP)
	k.entries[flowOf(data)] = Action{Ops: OpDSCP, DSCP: 3}
	if n, left := b.packets(2, data); n != 2 || left {
		t.Fatalf("%d taken, left %v", n, left)
	}
	b.step(k.answer)
	b.want("2 frames, 0 cached, 2 hits, 0 misses, 0 denied, 0 unfit, 0 lost")
	if _, left := b.packets(1, data); !left {
		t.Error("the entry is not in the cache")
	}
	b.want("3 frames, 1 cached, 2 hits, 0 misses, 0 denied, 0 unfit, 0 lost")
	b.m.ClearTable(cacheName)
	b.packets(1, data)
	b.m.tables[0].cache.put(&k.frames[0].Key, &Action{}, k.frames[0].Hash)
	if _, left := b.packets(1, data); left {
		t.Error("a packet overtakes one in flight")
	}
	b.step(k.answer)
	b.want("5 frames, 1 cached, 4 hits, 0 misses, 0 denied, 0 unfit, 0 lost")
}

// A lookup that has read the slots before a change does not fill the cache, and a change takes the entry
// out of it.
func TestChangesAndCache(t *testing.T) {
	b := newBed(t, "table=ms0 cache=4")
	k, data := b.servers[0], packet(b.r, false, protoTCP)
	key := flowOf(data)
	k.entries[key] = Action{Ops: OpDrop}
	b.packets(1, data)
	b.step(func(*pipeline.Ctx) { k.table.Changed(&key, false) })
	b.step(k.answer)
	if n := k.table.cache.len(); n != 0 {
		t.Errorf("%d entries in the cache", n)
	}
	b.packets(1, data)
	b.step(k.answer)
	if n := k.table.cache.len(); n != 1 {
		t.Errorf("%d entries in the cache", n)
	}
	k.table.Changed(&key, true)
	if n := k.table.cache.len(); n != 0 {
		t.Errorf("%d entries in the cache after a change", n)
	}
	b.want("2 frames, 0 cached, 2 hits, 0 misses, 2 denied, 0 unfit, 0 lost")
}

// Only IP packets that come in at the host's port are taken. A miss is forwarded or dropped as the rule
// says, and RoCEv2 packets are not rewritten.
func TestWhatIsTaken(t *testing.T) {
	b := newBed(t, "table=ms0 miss=drop cache=4")
	data := packet(b.r, false, protoUDP)
	if n, _ := b.packets(1, make([]byte, 60)); n != 0 {
		t.Error("a frame that is no IP packet is taken")
	}
	b.step(func(c *pipeline.Ctx) {
		if b.m.Take(c, portOfHost+1, packetio.Frame{Data: data}) || b.m.Take(c, 99, packetio.Frame{Data: data}) {
			t.Error("a frame of another port is taken")
		}
	})
	b.packets(1, data)
	b.missed = 1
	if b.step(b.servers[0].answer) != 0 {
		t.Error("a packet without an entry is forwarded")
	}
	b.rule("table=ms0 cache=4")
	b.packets(1, data)
	if b.step(b.servers[0].answer) == 0 {
		t.Error("a packet without an entry is not forwarded")
	}
	data[keyPort(data)], data[keyPort(data)+1] = rocePort>>8, rocePort&0xff
	b.servers[0].entries[flowOf(data)] = Action{Ops: OpSource}
	b.packets(1, data)
	b.step(b.servers[0].answer)
	b.want("3 frames, 0 cached, 0 hits, 2 misses, 0 denied, 1 unfit, 0 lost")
}

// keyPort returns the offset of the destination port.
func keyPort(data []byte) int {
	var v view
	v.parse(data)
	return v.l4 + 2
}

// A rule whose table has the same place keeps its cache and its counters; another place is another table,
// and packets in flight through the former one are lost.
func TestChangeOfTheRule(t *testing.T) {
	b := newBed(t, "table=ms0 cache=4")
	data := packet(b.r, false, protoTCP)
	b.servers[0].entries[flowOf(data)] = Action{Ops: OpDSCP}
	b.packets(1, data)
	b.step(b.servers[0].answer)
	b.rule("table=ms0 cache=4 miss=drop")
	if _, left := b.packets(1, data); !left || len(b.servers) != 1 {
		t.Error("the table has lost its cache")
	}
	b.m.ClearTable(cacheName)
	b.packets(3, data)
	b.rule("table=ms0 cache=4 base=64")
	b.want("5 frames, 1 cached, 1 hits, 0 misses, 0 denied, 0 unfit, 3 lost")
	b.packets(2, data)
	b.rule("")
	b.want("7 frames, 1 cached, 1 hits, 0 misses, 0 denied, 0 unfit, 5 lost")
	if n, _ := b.packets(1, data); n != 0 {
		t.Error("a packet is taken without a rule")
	}
}

// A table that is larger than the server's memory is not used, and the reason is listed.
func TestTableThatDoesNotFit(t *testing.T) {
	b := newBed(t, "table=ms0")
	l := b.m.Links.All[0]
	b.step(func(c *pipeline.Ctx) { b.m.Detach(c, l.Key(), l.Generation()) })
	if b.attach(l, 1<<20) {
		t.Error("the connection is used")
	}
	if list := b.m.list(0); len(list) != 1 || len(list[0].Table) != 1 || !strings.Contains(list[0].Table[0].Why, "up to offset 0x5001c0") {
		t.Errorf("%+v", list)
	}
	if !b.attach(l, 64<<20) || l.Why() != "" {
		t.Error("a connection that fits is not used")
	}
}

// If one entry is wrong, none changes; those that find no room are not taken.
func TestChangeEntries(t *testing.T) {
	b := newBed(t, "table=ms0 match=destination")
	change := func(list ...string) (out handler.EntriesReport, err error) {
		b.step(func(c *pipeline.Ctx) {
			out, err = b.m.Change(c, handler.Entries{Rule: "r", Entries: list}, netip.ParseAddr)
		})
		return out, err
	}
	if _, err := change("to=10.0.0.1 drop", "to=10.0.0.2 fast"); err == nil || len(b.servers[0].changes) != 0 {
		t.Errorf("%v, %d changes", err, len(b.servers[0].changes))
	}
	list := make([]string, 5)
	for i := range list {
		list[i] = fmt.Sprintf("to=10.0.0.%d drop", i+1)
	}
	if out, err := change(list...); err != nil || out.Taken != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	b.step(b.servers[0].answer)
	if out, err := change(); err != nil || out.Written != 4 || out.Waiting != 0 || out.Down != "" {
		t.Errorf("%+v, %v", out, err)
	}
	b.servers[0].up = false
	if out, _ := change(); out.Down == "" {
		t.Error("a server without a connection is not named")
	}
	for text, at := range map[string][2]int{"server 1": {1, 0}, "slot 65543": {0, 65543}, "no connection": {0, 0}} {
		if _, err := b.m.Page(nil, "r", at[0], at[1]); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	if _, err := b.m.Page(nil, "other", 0, 0); err == nil {
		t.Error("a table without a rule")
	}
}
