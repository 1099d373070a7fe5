package transport

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The scenario scripts of testdata: two queue pairs a and b on a wire that the script controls.
// testdata/README.md explains the commands; -rewrite rewrites the results.
func TestScripts(t *testing.T) {
	named := 0
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return // a picture, or the README
		}
		s := &script{}
		defer func() { named += s.named }()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d, s.text = t, d, strings.Builder{}
			cmd, ok := commands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			cmd(s)
			if s.text.Len() == 0 {
				return "ok\n"
			}
			return s.text.String()
		})
		s.named += s.tape.check(t)
	})
	if named < 35 {
		t.Errorf("%d packets that scripts have made up break a rule, want at least 35: the tape is not held against the rules", named)
	}
}

// script is the state of one scenario.
type script struct {
	t       *testing.T
	d       *datadriven.TestData
	text    strings.Builder
	a, b    *side
	regions map[string]*mem.Region
	windows map[string]*mem.Window
	now     clock.Time
	wire    []flying
	held    []flying
	tape    tape
	named   int // packets that the script has made up, and that break a rule
}

var commands = map[string]func(*script){
	"pair": (*script).pair, "post": (*script).post, "recv": (*script).recv, "inject": (*script).inject,
	"drop": (*script).drop, "dup": (*script).dup, "hold": (*script).hold, "release": (*script).release,
	"deliver": (*script).deliver, "advance": (*script).advance, "next": (*script).next, "flush-acks": (*script).flushAcks,
	"state": (*script).state, "show": (*script).show, "counters": (*script).counters,
	"region": (*script).region, "invalidate": (*script).invalidate, "dereg": (*script).dereg,
	"word": (*script).word, "fill": (*script).fill, "bytes": (*script).bytes, "tear": (*script).tear,
	"limit": (*script).limit, "mw": (*script).window,
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// num reads key=value as a number; PSNs are hexadecimal without prefix.
func (s *script) num(key string, def uint64) uint64 {
	arg, ok := s.d.Arg(key)
	if !ok {
		return def
	}
	base := 0
	if strings.HasPrefix(key, "psn") {
		base = 16
	}
	v, err := strconv.ParseUint(arg.Vals[0], base, 64)
	if err != nil {
		s.d.Fatalf(s.t, "%s: %v", key, err)
	}
	return v
}

func (s *script) str(key, def string) string {
	if arg, ok := s.d.Arg(key); ok {
		return arg.Vals[0]
	}
	return def
}

// sides returns the side that the first argument names, and its peer.
func (s *script) sides() (me, peer *side) {
	if s.d.CmdArgs[0].Key == "a" {
		return s.a, s.b
	}
	return s.b, s.a
}

func (s *script) pair() {
	cfg := Config{
		QPN: 0x11, Window: int(s.num("window", 0)), AckEvery: int(s.num("ack-every", 0)),
		CoalesceAcks: s.d.HasArg("coalesce"), MaxSendWR: int(s.num("send-wr", 0)), MaxRecvWR: int(s.num("recv-wr", 0)),
	}
	if s.str("type", "") == "uc" {
		cfg.Type = verbs.UC
	}
	named := s.named + s.tape.check(s.t)
	*s = script{named: named, t: s.t, d: s.d, regions: map[string]*mem.Region{}, windows: map[string]*mem.Window{}}
	s.a = newSide(s.t, "a", 1, 1<<16, cfg)
	cfg.QPN, cfg.Window = 0x12, int(s.num("window-b", s.num("window", 0)))
	s.b = newSide(s.t, "b", 2, 1<<16, cfg)
	if s.d.HasArg("srq") {
		for _, x := range []*side{s.a, s.b} {
			shareReceives(s.t, x, int(s.num("srq", 0)))
		}
	}
	l := link{
		mtu: verbs.MTU(s.num("mtu", 256)), psnA: wire.PSN(s.num("psn", 0x100)), psnB: wire.PSN(s.num("psn-b", 0x800000)),
		access: allRemote,
	}
	if arg, ok := s.d.Arg("access"); ok {
		l.access = access(arg.Vals)
	}
	l.rtr = verbs.ToRTR{MaxDestRdAtomic: int(s.num("dest-rd", 0)), MinRNRTimer: uint8(s.num("rnr-timer", 12))}
	l.rts = verbs.ToRTS{
		MaxRdAtomic: int(s.num("rd", 0)), Timeout: uint8(s.num("timeout", 14)),
		RetryCount: uint8(s.num("retry", 7)), RNRRetry: uint8(s.num("rnr-retry", 7)),
	}
	if s.d.HasArg("no-rd") {
		l.rts.MaxRdAtomic = -1
	}
	if s.d.HasArg("no-dest-rd") {
		l.rtr.MaxDestRdAtomic = -1
	}
	connect(s.t, s.a, s.b, l)
	s.printf("a=%v b=%v", s.a.qp.State(), s.b.qp.State())
}

func access(names []string) verbs.Access {
	var a verbs.Access
	for _, n := range names {
		a |= map[string]verbs.Access{"local": verbs.LocalWrite, "write": verbs.RemoteWrite, "read": verbs.RemoteRead, "atomic": verbs.RemoteAtomic, "window": verbs.MWBind}[n]
	}
	return a
}

// target returns the memory of peer that the command names: its region, or a named one.
func (s *script) target(peer *side) *mem.Region {
	if r, ok := s.regions[s.str("region", "")]; ok {
		return r
	}
	return peer.mem
}

var opNames = map[string]verbs.WROpcode{
	"send": verbs.OpSend, "send-imm": verbs.OpSendImm, "send-inv": verbs.OpSendInv, "write": verbs.OpWrite,
	"write-imm": verbs.OpWriteImm, "read": verbs.OpRead, "cas": verbs.OpCmpSwap, "faa": verbs.OpFetchAdd,
	"atomic-write": verbs.OpAtomicWrite, "flush": verbs.OpFlush, "local-inv": verbs.OpLocalInv, "bind": verbs.OpBindMW, "reg-mr": verbs.OpRegMR,
}

// post SIDE OP wr=ID [len at from imm add compare swap region] [inline fence solicited unsignalled
// whole rkey=bad lkey=bad].
func (s *script) post() {
	me, peer := s.sides()
	op := opNames[s.d.CmdArgs[1].Key]
	r := s.target(peer)
	n := int(s.num("len", 0))
	if op == verbs.OpCmpSwap || op == verbs.OpFetchAdd {
		n = 8
	}
	from := int(s.num("from", 0))
	wr := verbs.SendWR{
		ID: s.num("wr", 0), Op: op, Flags: verbs.Signalled, Imm: uint32(s.num("imm", 0)), RKey: r.RKey(),
		RemoteAddr: r.Base() + s.num("at", 0), CompareAdd: s.num("add", s.num("compare", 0)), Swap: s.num("swap", 0),
	}
	switch {
	case s.d.HasArg("inline"):
		wr.Data = me.buf[from : from+n]
	case op != verbs.OpLocalInv && !isBare(op):
		wr.SGL = []verbs.SGE{{Addr: me.mem.Base() + uint64(from), Length: uint32(n), LKey: me.mem.LKey()}}
		if own, ok := s.regions[s.str("local", "")]; ok {
			wr.SGL[0].Addr, wr.SGL[0].LKey = own.Base(), own.LKey()
		}
	}
	if op == verbs.OpFlush {
		wr.Flush = verbs.Flush{Length: uint32(n), Region: s.d.HasArg("whole"), Global: true}
	}
	if mw, ok := s.windows[s.str("mw", "")]; ok {
		switch wr.InvRKey, wr.RKey = mw.RKey(), mw.RKey(); op {
		case verbs.OpBindMW:
			own := s.target(me)
			wr.RKey, wr.BindAccess = verbs.NextRKey(mw.RKey()), access(s.d.CmdArgs[len(s.d.CmdArgs)-1].Vals)
			wr.SGL = []verbs.SGE{{Addr: own.Base() + s.num("at", 0), Length: uint32(n), LKey: own.LKey()}}
		case verbs.OpLocalInv, verbs.OpSendInv:
		default:
			wr.RemoteAddr = r.Base() + s.num("at", 0)
		}
	} else if op == verbs.OpLocalInv || op == verbs.OpSendInv {
		wr.InvRKey = s.regions[s.str("inv", "")].RKey()
	} else if op == verbs.OpRegMR {
		own := s.target(me)
		wr.RKey, wr.BindAccess = verbs.NextRKey(own.RKey()), access(s.d.CmdArgs[len(s.d.CmdArgs)-1].Vals)
		wr.SGL = []verbs.SGE{{Addr: own.Base() + s.num("at", 0), Length: uint32(n), LKey: own.LKey()}}
	}
	for name, f := range map[string]verbs.SendFlags{"inline": verbs.Inline, "fence": verbs.Fence, "solicited": verbs.Solicited} {
		if s.d.HasArg(name) {
			wr.Flags |= f
		}
	}
	if s.d.HasArg("unsignalled") {
		wr.Flags &^= verbs.Signalled
	}
	if s.str("rkey", "") == "bad" {
		wr.RKey ^= 0xff
	}
	if s.str("lkey", "") == "bad" {
		wr.SGL[0].LKey ^= 0xff
	}
	if err := me.qp.PostSend(s.now, &wr, &me.out); err != nil {
		s.printf("%v", err)
	}
	s.collect(me, peer)
}

// recv SIDE wr=ID len=N [from=N lkey=bad].
func (s *script) recv() {
	me, peer := s.sides()
	wr := verbs.RecvWR{ID: s.num("wr", 0), SGL: []verbs.SGE{me.sge(int(s.num("from", 0)), int(s.num("len", 0)))}}
	if s.str("lkey", "") == "bad" {
		wr.SGL[0].LKey ^= 0xff
	}
	postRecv := me.postRecv
	if s.d.HasArg("private") {
		postRecv = me.qp.PostRecv
	}
	if err := postRecv(&wr); err != nil {
		s.printf("%v", err)
	}
	s.collect(me, peer)
}

// limit SIDE n=N arms the limit of the shared receive queue.
func (s *script) limit() {
	me, _ := s.sides()
	if err := me.qp.core.cfg.SRQ.SetLimit(int(s.num("n", 0))); err != nil {
		s.printf("%v", err)
	}
}

// inject SIDE OPCODE psn=X: hands a packet to SIDE as if its peer had sent it.
func (s *script) inject() {
	me, peer := s.sides()
	op, err := wire.ParseOpcode(s.d.CmdArgs[1].Key)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	r := s.target(me)
	p := wire.Packet{Payload: make([]byte, s.num("len", 0))}
	p.BTH = wire.BTH{Opcode: op, PSN: wire.PSN(s.num("psn", 0)), AckReq: s.d.HasArg("ack-req"), PKey: 0xffff, DestQP: me.qp.Num()}
	p.RETH = wire.RETH{VA: r.Base() + s.num("at", 0), RKey: r.RKey(), Length: uint32(s.num("dma", 0))}
	p.AtomicETH = wire.AtomicETH{VA: p.RETH.VA, RKey: p.RETH.RKey, SwapOrAdd: s.num("add", 0)}
	p.AETH = wire.AETH{Syndrome: wire.Syndrome(s.num("syndrome", uint64(wire.AckNoCredits)))}
	if s.str("rkey", "") == "bad" {
		p.RETH.RKey ^= 0xff
		p.AtomicETH.RKey ^= 0xff
	}
	s.tape.add(s.now, peer, &p, true)
	me.qp.Handle(s.now, &p, &me.out)
	s.collect(me, peer)
}

// state SIDE STATE: a transition.
func (s *script) state() {
	me, peer := s.sides()
	q := me.qp
	var err error
	switch to := s.d.CmdArgs[1].Key; to {
	case "INIT":
		err = q.ToInit(verbs.ToInit{})
	case "RTS":
		err = q.ResumeRTS(s.now, &me.out)
	case "SQD":
		err = q.ToSQD(s.now, &me.out)
	case "ERR":
		err = q.ToError(s.now, &me.out)
	case "RESET":
		err = q.ToReset()
	default:
		s.d.Fatalf(s.t, "state %q", to)
	}
	if err != nil {
		s.printf("%v", err)
	}
	s.collect(me, peer)
}

func (s *script) region() {
	me, _ := s.sides()
	pd := me.pd
	if s.d.HasArg("other-pd") {
		pd, _ = me.env.Mem.AllocPD()
	}
	rights := allAccess
	if arg, ok := s.d.Arg("access"); ok {
		rights = access(arg.Vals)
	}
	if s.d.HasArg("fast") { // registered by a work request
		s.regions[s.str("name", "")] = me.fastReg(s.t, int(s.num("len", 4096)), rights)
		return
	}
	reg := func() (*mem.Region, error) { return me.env.Mem.Reg(pd, make([]byte, s.num("len", 4096)), rights) }
	if s.d.HasArg("unregistered") {
		reg = func() (*mem.Region, error) { return me.env.Mem.AllocFast(pd, make([]byte, s.num("len", 4096))) }
	}
	r, err := reg()
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.regions[s.str("name", "")] = r
}

// window SIDE name=M: makes a memory window.
func (s *script) window() {
	me, _ := s.sides()
	w, err := me.env.Mem.AllocWindow(me.pd)
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.windows[s.str("name", "")] = w
}

func (s *script) invalidate() {
	me, _ := s.sides()
	if f := me.env.Mem.Invalidate(me.pd, me.qp.Num(), s.target(me).RKey(), false); f != mem.OK {
		s.printf("%v", f)
	}
}

func (s *script) dereg() {
	me, _ := s.sides()
	if err := me.env.Mem.Dereg(s.target(me)); err != nil {
		s.printf("%v", err)
	}
}

// tear SIDE cut=N pause=D [tail-first], or tear SIDE off.
func (s *script) tear() {
	me, _ := s.sides()
	if s.d.HasArg("off") {
		me.env.Mem.SetTear(nil)
		return
	}
	pause, err := time.ParseDuration(s.str("pause", "10us"))
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	tr := mem.Tear{Cut: int(s.num("cut", 64)), TailFirst: s.d.HasArg("tail-first"), Pause: pause}
	me.env.Mem.SetTear(func(int) mem.Tear { return tr })
}
