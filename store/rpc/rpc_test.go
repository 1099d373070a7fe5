package rpc_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/rpc"
)

const (
	maxRequest, maxAnswer = 32, 64
	service               = "adder"
	// The server is busy for stallTime with a request whose first number is stall.
	stall     = 1<<32 - 1
	stallTime = 100 * time.Millisecond
	// The answer to a request whose first number is tooLong does not fit into the server's area for it.
	tooLong = 1<<32 - 2
)

// newRack returns a rack with a server that adds: a request has its number, the client's buffer and
// two numbers; the answer has the number of the request and the sum.
func newRack(opt simrack.Options, cfg rpc.Config) *simrack.Rack {
	return newRackOf("hosts: [{name: md0, role: metadata}, {name: \"cn[0-1]\", role: compute}]", opt, cfg)
}

// newRackOf is newRack for a rack with these hosts, and perhaps a switch program.
func newRackOf(hosts string, opt simrack.Options, cfg rpc.Config) *simrack.Rack {
	file, err := rackfile.Parse([]byte("name: rpc\n" + hosts))
	if err != nil {
		log.Fatal(err)
	}
	rack, err := simrack.New(file, opt)
	if err != nil {
		log.Fatal(err)
	}
	md0 := rack.Host("md0")
	md0.Go("memory", true, func(ctx verbs.Context) { // for a switch with rules
		if s, err := memservice.New(ctx, md0.Manager(ctx), memservice.Config{Region: 1 << 16}); err == nil {
			_ = s.Serve() // it fails when the rack ends
		}
	})
	md0.Go("server", true, func(ctx verbs.Context) {
		cfg.Context, cfg.MaxRequest, cfg.MaxAnswer, cfg.Threads, cfg.Slots = ctx, maxRequest, maxAnswer, 1, 2
		made, err := rpc.New(cfg)
		if err != nil {
			log.Fatal(err)
		}
		l, err := md0.Manager(ctx).Listen(service)
		if err != nil {
			log.Fatal(err)
		}
		made.Accept(l)
		th, le := made.Threads()[0], binary.LittleEndian
		for {
			made.DropDead()
			n, err := th.Poll(func(r rpc.Request) bool {
				b := make([]byte, maxRequest)
				if r.Len() == 28 && made.Read(r, b) == nil {
					if le.Uint32(b[16:]) == stall {
						ctx.Runtime().Sleep(stallTime)
					}
					sum := le.AppendUint64(le.AppendUint32(nil, le.Uint32(b)), uint64(le.Uint32(b[16:]))+uint64(le.Uint32(b[20:])))
					if le.Uint32(b[16:]) == tooLong {
						sum = append(sum, make([]byte, maxAnswer)...)
					}
					made.Answer(r.Conn, rpc.Buffer{Addr: le.Uint64(b[4:]), RKey: le.Uint32(b[12:])}, 0, le.Uint32(b), sum)
				}
				return true
			})
			if err == nil && n == 0 {
				err = th.Wait(ctx.Runtime().Now().Add(10 * time.Millisecond))
			}
			if err != nil {
				return // the rack ends
			}
		}
	})
	return rack
}

// dial makes a caller.
func dial(rack *simrack.Rack, host string, ctx verbs.Context, p rdmacm.Params) (*rpc.Caller, error) {
	f, err := remotemem.New(remotemem.Config{Context: ctx, Buffer: maxRequest + 2*maxAnswer, Access: verbs.RemoteWrite})
	if err != nil {
		return nil, err
	}
	c := &rpc.Caller{Fabric: f, Answer: maxRequest, Name: "md0"}
	f.OnNotify(c.Notify)
	c.Peer, err = f.AddPeer(rack.Host("md0").Addr(), 2, func(qp verbs.QP, until clock.Time) error {
		_, err := rack.Host(host).Manager(ctx).Dial(qp, rack.Host("md0").Addr(), service, p, nil, until)
		return err
	})
	return c, err
}

// request returns the bytes of a request.
func request(c *rpc.Caller, seq, a, b uint32) []byte {
	le, to := binary.LittleEndian, c.Buffer()
	r := le.AppendUint32(le.AppendUint64(le.AppendUint32(nil, seq), to.Addr), to.RKey)
	return append(le.AppendUint32(le.AppendUint32(r, a), b), 0, 0, 0, 0)
}

// add calls the server once.
func add(c *rpc.Caller, seq, a, b uint32, deadline clock.Time) (sum uint64, err error) {
	if err = c.Fabric.Open(c.Peer, deadline); err == nil {
		err = c.Post(request(c, seq, a, b), seq)
	}
	if err == nil {
		err = c.Wait(deadline)
	}
	if err == nil {
		err = c.Drain(deadline)
	}
	if err != nil {
		return 0, errors.Join(err, c.Fabric.Break(c.Peer))
	}
	var out [12]byte
	le := binary.LittleEndian
	err = c.Fabric.MR().ReadAt(out[:], c.Answer)
	if got := le.Uint32(out[:]); err == nil && got != seq {
		err = fmt.Errorf("the answer to request %d is in the buffer of %d", got, seq)
	}
	return le.Uint64(out[4:]), err
}

// Calls are answered, each with its own answer, while packets are lost both ways.
func TestCallsUnderLoss(t *testing.T) {
	rack := newRack(simrack.Options{Seed: 3}, rpc.Config{Requests: 16, Conns: 16})
	defer rack.Close()
	rack.Host("cn0").SetFaults([]fault.Rule{
		{Link: "cn0", Dir: fault.Up, Kind: fault.Loss, Probability: 0.1},
		{Link: "cn0", Dir: fault.Down, Kind: fault.Loss, Probability: 0.1},
	})
	for _, host := range []string{"cn0", "cn1"} {
		rack.Host(host).Go("client", false, func(ctx verbs.Context) {
			c, err := dial(rack, host, ctx, rdmacm.Params{})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range uint32(200) {
				if sum, err := add(c, i+1, i, 1<<31, ctx.Runtime().Now().Add(30*time.Second)); err != nil || sum != uint64(i)+1<<31 {
					t.Errorf("%s: %d + 2^31 is %d, %v", host, i, sum, err)
				}
			}
			if err := c.Fabric.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
}

// A client whose answer the server cannot send learns at once that none will come.
func TestAnswerThatCannotBeSent(t *testing.T) {
	rack := newRack(simrack.Options{Datagrams: true}, rpc.Config{Requests: 16, Conns: 16})
	defer rack.Close()
	rack.Host("cn0").Go("client", false, func(ctx verbs.Context) {
		c, err := dial(rack, "cn0", ctx, rdmacm.Params{})
		if err != nil {
			t.Error(err)
			return
		}
		began := ctx.Runtime().Now()
		if _, err := add(c, 1, tooLong, 1, began.Add(time.Minute)); err == nil {
			t.Error("an answer came")
		}
		if took := ctx.Runtime().Now().Sub(began); took > 10*time.Second {
			t.Errorf("the client was told after %v", took)
		}
		if sum, err := add(c, 2, 1, 1, ctx.Runtime().Now().Add(time.Minute)); err != nil || sum != 2 {
			t.Errorf("over a new connection: %d, %v", sum, err)
		}
		if err := c.Fabric.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
}

// The server's answer is lost for longer than the server's NIC repeats it, so the server has no connection
// any more, and the client's NIC has nothing in flight that would show it. The client learns it nevertheless, long
// before its deadline.
//
// This is also so behind a switch that sends requests on its own connection to the server, which the
// server still has.
func TestLostAnswerOfAnEndedConnection(t *testing.T) {
	for name, hosts := range map[string]string{
		"forward": `hosts: [{name: md0, role: metadata}, {name: "cn[0-1]", role: compute}]`,
		"move":    "hosts: [{name: md0, role: memory}, {name: \"cn[0-1]\", role: compute}]\nswitch: {program: swordbox, rules: [{server: md0, action: move}]}",
	} {
		t.Run(name, func(t *testing.T) { loseAnswer(t, hosts) })
	}
}

func loseAnswer(t *testing.T, hosts string) {
	rack := newRackOf(hosts, simrack.Options{Datagrams: true}, rpc.Config{Requests: 16, Conns: 16})
	defer rack.Close()
	rack.Host("cn0").Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := dial(rack, "cn0", ctx, rdmacm.Params{Timeout: 8})
		if err == nil {
			_, err = add(c, 1, 1, 1, rt.Now().Add(time.Second))
		}
		if err == nil {
			err = c.Post(request(c, 2, stall, 1), 2)
		}
		if err == nil {
			err = c.Drain(rt.Now().Add(stallTime / 2))
		}
		if err != nil {
			t.Error(err)
			return
		}
		// The links lose the answer and the server's DREQ, however often the server's NIC sends them, and
		// nothing else.
		began := rt.Now()
		loses := func(link string, dir fault.Dir, op wire.Opcode) {
			rack.Host(link).SetFaults([]fault.Rule{{Link: link, Dir: dir, Kind: fault.Loss, Probability: 1, Match: fault.Match{Opcodes: []wire.Opcode{op}}}})
		}
		loses("cn0", fault.Down, wire.RCWriteOnlyImm)
		loses("md0", fault.Up, wire.UDSendOnly)
		if err = c.Wait(began.Add(time.Minute)); err == nil {
			t.Error("an answer came")
		}
		rack.Host("cn0").SetFaults(nil)
		rack.Host("md0").SetFaults(nil)
		if took := rt.Now().Sub(began); took < stallTime || took > 3*time.Second {
			t.Errorf("the client learnt after %v that its answer was lost", took)
		}
		if err = c.Fabric.Break(c.Peer); err == nil {
			_, err = add(c, 3, 1, 1, rt.Now().Add(time.Minute))
		}
		if err = errors.Join(err, c.Fabric.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
}

// A server that is only slow keeps its clients, however often they look whether it still has their connection.
func TestSlowAnswer(t *testing.T) {
	rack := newRack(simrack.Options{}, rpc.Config{Requests: 16, Conns: 16})
	defer rack.Close()
	rack.Host("cn0").Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := dial(rack, "cn0", ctx, rdmacm.Params{})
		for i := uint32(1); err == nil && i <= 8; i++ {
			_, err = add(c, i, stall, 1, rt.Now().Add(2*stallTime))
		}
		if err = errors.Join(err, c.Fabric.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
	if sent := rack.Host("cn0").Counters().SentPkts; sent > 100 {
		t.Errorf("the client sent %d packets for 8 calls of %v", sent, stallTime)
	}
}

// Clients break off while the server is busy and their requests wait in its completion queue. None of
// them takes a receive along: with four receives, the client after 20 of them is answered.
func TestBrokenClientsTakeNoReceive(t *testing.T) {
	rack := newRack(simrack.Options{Datagrams: true}, rpc.Config{Requests: 4, Conns: 16})
	defer rack.Close()
	rack.Host("cn0").Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(5 * time.Second) }
		c, err := dial(rack, "cn0", ctx, rdmacm.Params{})
		if err == nil {
			_, err = add(c, 1, 1, 1, soon())
		}
		for i := uint32(2); i < 12 && err == nil; i++ {
			if err = c.Post(request(c, i, stall, 1), i); err != nil {
				break
			}
			rt.Sleep(time.Millisecond)
			for range 2 {
				broken, err := dial(rack, "cn0", ctx, rdmacm.Params{})
				if err == nil {
					err = broken.Fabric.Open(broken.Peer, soon())
				}
				if err == nil {
					err = broken.Post(request(broken, 1, 1, 1), 1)
				}
				if err == nil {
					err = broken.Drain(soon()) // the server's NIC has the request
				}
				if err = errors.Join(err, broken.Fabric.Close()); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
			}
			err = c.Wait(soon())
			rt.Sleep(stallTime)
		}
		if err == nil {
			_, err = add(c, 99, 1, 1, soon())
		}
		if err = errors.Join(err, c.Fabric.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
	if n := rack.Host("md0").Counters().SendRnrErr; n > 0 {
		t.Errorf("the server had no receive for %d requests", n)
	}
}

// A server that adds, and a client: newRack has the server's loop, add the client's call.
func Example() {
	rack := newRack(simrack.Options{}, rpc.Config{Requests: 64, Conns: 64})
	defer rack.Close()
	rack.Host("cn0").Go("client", false, func(ctx verbs.Context) {
		c, err := dial(rack, "cn0", ctx, rdmacm.Params{})
		if err != nil {
			log.Fatal(err)
		}
		deadline := ctx.Runtime().Now().Add(time.Second)
		fmt.Println(add(c, 1, 20, 22, deadline))
		fmt.Println(add(c, 2, 1<<31, 1<<31, deadline))
		_ = c.Fabric.Close()
	})
	if err := rack.Run(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 42 <nil>
	// 4294967296 <nil>
}

// Clients crash, each with a connection that the server takes for alive: it gets no packet any more, and sends
// none. Further clients are answered nevertheless, and those that work keep their connections.
func TestCrashedClientsTakeNoConnection(t *testing.T) {
	rack := newRack(simrack.Options{}, rpc.Config{Requests: 16, Conns: 4})
	defer rack.Close()
	crashed := 0
	rack.Host("cn0").Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := dial(rack, "cn0", ctx, rdmacm.Params{})
		for i := uint32(1); err == nil && crashed < 12; i++ {
			_, err = add(c, i, 1, 1, rt.Now().Add(time.Second))
			rt.Sleep(10 * time.Millisecond)
		}
		if err = errors.Join(err, c.Fabric.Close()); err != nil {
			t.Errorf("the client that works, when %d have crashed: %v", crashed, err)
		}
	})
	rack.Host("cn0").Go("story", false, func(ctx verbs.Context) {
		rt, h := ctx.Runtime(), rack.Host("cn1")
		for ; crashed < 12; crashed++ {
			answered := false
			h.Go("client", true, func(ctx verbs.Context) {
				c, err := dial(rack, "cn1", ctx, rdmacm.Params{})
				for end := ctx.Runtime().Now().Add(5 * time.Second); err == nil && !answered; {
					if _, err = add(c, 1, 1, 1, end); err == nil {
						answered = true
					} else if ctx.Runtime().Now() < end {
						ctx.Runtime().Sleep(10 * time.Millisecond)
						err = nil
					}
				}
				if err != nil {
					t.Errorf("client %d: %v", crashed, err)
					answered = true
				}
				ctx.Runtime().Sleep(time.Hour)
			})
			for !answered {
				rt.Sleep(time.Millisecond)
			}
			h.Crash()
			h.Restart()
		}
	})
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
}
