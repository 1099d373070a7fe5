package serialize

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// The scenario scripts of testdata: clients a, b, c, a server s and the switch between them.
// testdata/README.md explains the commands; -rewrite replaces the recorded results.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			s.text.Reset()
			cmd, ok := scriptCommands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			cmd(s)
			if s.text.Len() == 0 {
				return "ok\n"
			}
			return s.text.String()
		})
	})
}

type script struct {
	t          *testing.T
	d          *datadriven.TestData
	text       strings.Builder
	r          *rig
	conns      []*conn
	lose       []loss
	second     *engine.MR
	secondRKey uint32
	secondBase uint64
	kept       map[string][]byte
}

// loss says what happens to the next packets that match.
type loss struct {
	link, op string
	n        int
	keep     string // the packet is kept under this name, to be delivered later
	twice    bool
	copy     bool
}

var scriptCommands = map[string]func(*script){
	"rack": (*script).rack, "post": (*script).post, "run": (*script).run, "advance": (*script).advance, "drop": (*script).drop,
	"keep": (*script).drop, "copy": (*script).drop, "dup": (*script).drop, "deliver": (*script).deliver, "kill": (*script).kill, "word": (*script).word,
	"words": (*script).words, "counters": (*script).counters, "fail": (*script).fail, "recv": (*script).recv,
	"second-key": (*script).secondKey, "dereg": (*script).dereg, "atomics-only": (*script).atomicsOnly, "inject": (*script).inject,
	"rows": (*script).flows, "rules": (*script).rules, "close": (*script).close,
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

func (s *script) num(key string, def int) int {
	arg, ok := s.d.Arg(key)
	if !ok {
		return def
	}
	base := 0
	if key == "psn" {
		base = 16
	}
	v, err := strconv.ParseInt(arg.Vals[0], base, 64)
	if err != nil {
		s.d.Fatalf(s.t, "%s: %v", key, err)
	}
	return int(v)
}

func (s *script) str(key, def string) string {
	if arg, ok := s.d.Arg(key); ok {
		return arg.Vals[0]
	}
	return def
}

// who returns the client that the first argument names.
func (s *script) who() int { return int(s.d.CmdArgs[0].Key[0] - 'a') }

func (s *script) rack() {
	rc := rigConfig{clients: s.num("clients", 1), shards: s.num("shards", 1), depth: s.num("depth", 16), manual: s.d.HasArg("manual")}
	rc.rules = atomicsRule(rc.shards)
	if s.d.HasArg("move") {
		rc.rules = moveRule(rc.shards)
	}
	rc.cfg.Shared = requester.Config{Ring: s.num("ring", 0)}
	rc.cfg.Window = s.num("window", 0)
	rc.cfg.HeldPerFlow = s.num("held", 0)
	*s = script{t: s.t, d: s.d, kept: map[string][]byte{}}
	s.r = newRig(s.t, rc)
	for i := range rc.clients {
		s.conns = append(s.conns, s.r.connect(i))
	}
	s.r.tap = s.see
}

// name returns the name of a host in scripts.
func (s *script) name(ip string) string {
	switch ip {
	case ipOf(serverIP).String():
		return "s"
	case ipOf(switchIP).String():
		return "w"
	}
	for i := range s.conns {
		if ip == ipOf(i+1).String() {
			return string(rune('a' + i))
		}
	}
	return ip
}

// see prints a packet when it enters a link, and decides whether it is lost, kept, copied or
// duplicated.
func (s *script) see(up bool, port int, data []byte) bool {
	f := parse(data)
	end := "s"
	if port < len(s.conns) {
		end = string(rune('a' + port))
	}
	link := end + ">w"
	if !up {
		link = "w>" + end
	}
	if !wire.CheckICRC(data) {
		s.printf("%s wrong ICRC", link)
	}
	text := s.packet(&f)
	for i := range s.lose {
		l := &s.lose[i]
		if l.n == 0 || l.link != link || l.op != "" && l.op != strings.TrimPrefix(f.BTH.Opcode.String(), "RC_") {
			continue
		}
		l.n--
		switch {
		case l.twice:
			s.printf("%s %s (twice)", link, text)
			s.r.tap = nil
			s.r.launch(up, port, data, false)
			s.r.tap = s.see
			return true
		case l.copy:
			s.kept[l.keep] = slices.Clone(data)
			s.printf("%s %s", link, text)
			return true
		case l.keep != "":
			s.kept[l.keep] = slices.Clone(data)
			s.printf("%s %s (kept)", link, text)
		default:
			s.printf("%s %s (lost)", link, text)
		}
		return false
	}
	s.printf("%s %s", link, text)
	return true
}

// packet prints a packet: its connection, opcode and numbers. Queue pairs are named by the hosts at
// their ends.
func (s *script) packet(f *wire.Frame) string {
	ends := s.name(f.SrcAddr().String()) + s.name(f.DstAddr().String())
	b := fmt.Sprintf("[%s] %s psn=%06x", ends, strings.TrimPrefix(f.BTH.Opcode.String(), "RC_"), uint32(f.BTH.PSN))
	at := func(va uint64) int64 { return int64(va - s.r.server.base) }
	op := f.BTH.Opcode
	if op.Has(wire.HasRETH) {
		b += fmt.Sprintf(" at=%d len=%d", at(f.RETH.VA), f.RETH.Length)
	}
	if op.Has(wire.HasAtomicETH) {
		if b += fmt.Sprintf(" at=%d", at(f.AtomicETH.VA)); op == wire.RCCmpSwap {
			b += fmt.Sprintf(" compare=%d swap=%d", f.AtomicETH.Compare, f.AtomicETH.SwapOrAdd)
		} else {
			b += fmt.Sprintf(" add=%d", f.AtomicETH.SwapOrAdd)
		}
	}
	if len(f.Payload) == 8 && op.Is(wire.OpWrite) {
		b += fmt.Sprintf(" value=% x", f.Payload)
	}
	if op.Has(wire.HasAETH) {
		if !f.AETH.Syndrome.IsAck() {
			b += " " + f.AETH.Syndrome.String()
		}
		b += fmt.Sprintf(" msn=%d", f.AETH.MSN)
	}
	if op.Has(wire.HasAtomicAckETH) {
		b += fmt.Sprintf(" was=%d", f.AtomicAck)
	}
	if f.BTH.AckReq && !op.Is(wire.OpAtomic|wire.OpRead) {
		b += " ack-req"
	}
	return b
}

// post WHAT: cas, faa, write, read, send.
func (s *script) post() {
	c := s.conns[s.who()]
	at, n := s.num("at", 0), s.num("len", 8)
	var wr verbs.SendWR
	switch what := s.d.CmdArgs[1].Key; what {
	case "cas":
		wr = c.cas(at, uint64(s.num("compare", 0)), uint64(s.num("swap", 0)), 0)
	case "faa":
		wr = c.faa(at, uint64(s.num("add", 1)), 8)
	case "write":
		buf := 4096 + s.num("wr", 0)*4096
		c.n.buf[buf] = byte(s.num("value", 0))
		wr = c.write(at, buf, n)
	case "read":
		wr = c.read(at, 60000, n)
	case "send":
		wr = verbs.SendWR{Op: verbs.OpSend, SGL: c.n.sge(0, n)}
	default:
		s.d.Fatalf(s.t, "unknown operation %q", what)
	}
	if s.d.HasArg("second-key") {
		wr.RKey, wr.RemoteAddr = s.secondRKey, s.secondBase+uint64(at)
	}
	if s.d.HasArg("bad-key") {
		wr.RKey ^= 0x5500
	}
	wr.ID = uint64(s.num("wr", 0))
	c.post(wr)
}

// run handles all events except timers.
func (s *script) run() {
	s.r.settle()
	s.done()
}

func (s *script) advance() {
	s.r.run(time.Duration(s.num("us", 0)) * time.Microsecond)
	s.done()
}

func (s *script) done() {
	for i, c := range s.conns {
		for _, wc := range c.n.poll() {
			s.printf("%c: wr=%d %v", 'a'+i, wc.ID, wc.Status)
		}
	}
	for _, wc := range s.r.server.poll() {
		s.printf("s: received %d bytes, %v", wc.ByteLen, wc.Status)
	}
	for _, why := range s.r.failed {
		s.printf("shared connection failed: %s", why)
	}
	s.r.failed = nil
}

// drop, keep, copy and dup decide what happens to the next packets on a link.
func (s *script) drop() {
	s.lose = append(s.lose, loss{
		link: s.d.CmdArgs[0].Key, op: s.str("op", ""), n: s.num("n", 1), keep: s.str("as", ""), twice: s.d.Cmd == "dup",
		copy: s.d.Cmd == "copy",
	})
}

// deliver puts a kept packet on its link again, at the switch or at a host.
func (s *script) deliver() {
	data := s.kept[s.d.CmdArgs[0].Key]
	up := s.str("to", "w") == "w"
	f := parse(data)
	port := slices.IndexFunc(s.r.nodes, func(n *node) bool { return n.e.Config().MAC == f.Eth.Src })
	if !up {
		port = slices.IndexFunc(s.r.nodes, func(n *node) bool { return n.e.Config().MAC == f.Eth.Dst })
	}
	s.r.launch(up, port, data, false)
	s.run()
}

// inject changes a kept packet and delivers it to the switch from a port.
func (s *script) inject() {
	f := parse(s.kept[s.d.CmdArgs[0].Key])
	f.BTH.PSN = wire.PSN(s.num("psn", int(f.BTH.PSN)))
	if s.d.HasArg("add") {
		f.AtomicETH.SwapOrAdd = uint64(s.num("add", 0))
	}
	f.BTH.AckReq = f.BTH.AckReq && !s.d.HasArg("no-ack")
	if arg, ok := s.d.Arg("op"); ok {
		op, err := wire.ParseOpcode("RC_" + arg.Vals[0])
		if err != nil {
			s.d.Fatalf(s.t, "%v", err)
		}
		f.BTH.Opcode = op
	}
	port := s.num("port", slices.IndexFunc(s.r.nodes, func(n *node) bool { return n.e.Config().MAC == f.Eth.Src }))
	s.r.launch(true, port, f.AppendTo(nil), false)
	s.run()
}

func (s *script) kill() { s.r.clients[s.who()].dead = true }

func (s *script) word() { s.printf("%d", s.r.server.word(s.num("at", 0))) }

func (s *script) words() {
	s.r.m.words.Each(func(w *atomiccache.Word) {
		s.printf("at=%d %v value=%d pending=%d own=%d", w.VA-s.r.server.base, w.State, w.Value, w.Pending, w.ClientPending())
	})
}

func (s *script) flows() {
	for _, l := range s.r.m.flows.list {
		if l != nil && s.name(l.flow.Requester.String()) != "s" {
			i := l.info()
			s.printf("%s: %s, shift %d, outstanding %d, held %d", s.name(i.Client.String()), i.State, i.Shift, i.Outstanding, l.waits.held.n)
		}
	}
}

// rules removes all rules.
func (s *script) rules() { s.r.m.SetRules(nil) }

// counters prints the counters that are not zero.
func (s *script) counters() {
	v := reflect.ValueOf(s.r.m.Stats())
	for i := range v.NumField() {
		if n := v.Field(i).Uint(); n > 0 {
			s.printf("%s=%d", v.Type().Field(i).Tag.Get("name"), n)
		}
	}
}

// fail puts the server's end of the newest shared connection into the error state.
func (s *script) fail() {
	q := s.r.shared[len(s.r.shared)-1]
	if err := q.ToError(s.r.now, &s.r.server.out); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) recv() {
	c := s.conns[s.who()]
	if err := c.server.PostRecv([]verbs.RecvWR{{SGL: s.r.server.sge(regionLen-64, 64)}}); err != nil {
		s.t.Fatal(err)
	}
}

// secondKey registers the server's memory once more.
func (s *script) secondKey() {
	s.register(verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic)
}

// atomicsOnly registers the server's memory once more, with atomics as the only access right.
func (s *script) atomicsOnly() { s.register(verbs.LocalWrite | verbs.RemoteAtomic) }

func (s *script) register(a verbs.Access) {
	mr, err := s.r.server.e.RegMR(s.r.server.pd, s.r.server.buf, a)
	if err != nil {
		s.t.Fatal(err)
	}
	s.second = mr
	r, _ := mr.Region()
	s.secondRKey, s.secondBase = r.RKey(), r.Base()
}

func (s *script) dereg() {
	if err := s.second.Dereg(); err != nil {
		s.t.Fatal(err)
	}
}

// close ends a client's flow, as a DREQ would.
func (s *script) close() {
	for _, l := range s.r.m.flows.list {
		if l != nil && l.flow.Requester == ipOf(s.who()+1) {
			s.r.m.Closed(s.r.g.ctx, l.flow)
			return
		}
	}
}
