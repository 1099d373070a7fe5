package scenario

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Each lock word has its own area: the node (the data that the lock protects), the word, and the
// guard. The holder of the lock writes its stamp, a random number, into the guard when it enters,
// and 0 before it releases the lock.
const (
	areaBytes = 2048
	nodeOff   = 0
	wordOff   = 1024
	guardOff  = wordOff + 8
	nodeMax   = wordOff
)

// lockWord is one word of a server. When the server loses its memory, the word gets a new memory
// region and a new history.
type lockWord struct {
	wordPlan
	index int
	log   int    // number of the history in which operations on the word are recorded
	area  []byte // the word's area, if it is in host memory
	mr    verbs.MR
	base  int // offset of the word's area in mr
	lost  bool
	epoch int // number of the server's start at which the word's present history began

	// word and guard are the values that the guardian has seen last.
	word, guard uint64
	// contested: true if a client may have a bit lock without knowing it, because the answer to its
	// CAS or release was lost.
	contested bool
	granted   int    // how often a client has entered, as the guardian has seen it
	lastSeen  uint64 // the value that any client saw last, used to guess the present one
}

func (w *lockWord) name() string {
	where := "host"
	if w.device {
		where = "device"
	}
	return fmt.Sprintf("w%d (%s, %s memory of ms%d)", w.index, wordKinds[w.kind], where, w.server)
}

// load reads the 64-bit number at offset `off` of the word's area. It returns false if the memory
// is lost.
func (w *lockWord) load(off int) (uint64, bool) {
	if w.lost {
		return 0, false
	}
	if !w.device {
		return binary.NativeEndian.Uint64(w.area[off:]), true
	}
	v, err := w.mr.Load64(w.base + off)
	return v, err == nil
}

// node copies the first len(b) bytes of the node, the data under the lock, to b. It returns false
// if they cannot be read.
func (w *lockWord) node(b []byte) bool {
	if !w.device {
		copy(b, w.area[nodeOff:])
		return true
	}
	return w.mr.ReadAt(b, w.base+nodeOff) == nil
}

// lockServer is one memory server. It registers its words and then does nothing but accept
// connections.
type lockServer struct {
	run   *lockRun
	host  *simrack.Host
	index int
	words []*lockWord
	start int // how often boot has started the server
}

const (
	lockService = "locks"
	// switchService is the service of the memory server to which the switch connects.
	switchService = "memory"
)

// boot starts the server's application, at the beginning or after a crash.
func (s *lockServer) boot() {
	s.start++
	s.host.Go(fmt.Sprintf("locks-%d", s.start), true, func(ctx verbs.Context) {
		err := s.serve(ctx) // serve returns only when the host crashes
		s.run.env.fail("server %s: %w", s.host.Spec.Name, err)
	})
}

// register registers the memory of the server's words: one region for all words in host memory, and
// one for each word in device memory.
func (s *lockServer) register(ctx verbs.Context, pd verbs.PD) error {
	var inHost []*lockWord
	for _, w := range s.words {
		if !w.device {
			inHost = append(inHost, w)
			continue
		}
		dm, err := ctx.AllocDM(areaBytes)
		if err != nil {
			return err
		}
		if w.mr, err = pd.RegDM(dm, 0, areaBytes, wordAccess); err != nil {
			return err
		}
	}
	if len(inHost) > 0 {
		memory := s.run.memory[s.index][:len(inHost)*areaBytes]
		mr, err := pd.RegMR(memory, len(memory), wordAccess)
		if err != nil {
			return err
		}
		for i, w := range inHost {
			w.mr, w.base, w.area = mr, i*areaBytes, memory[i*areaBytes:(i+1)*areaBytes]
		}
	}
	for _, w := range s.words {
		s.run.renew(w, s.start)
	}
	return nil
}

func (s *lockServer) serve(ctx verbs.Context) error {
	l, pd, err := listen(s.host, ctx, lockService)
	if err != nil {
		return err
	}
	if err := s.register(ctx, pd); err != nil {
		return err
	}
	var private []byte
	for _, w := range s.words {
		private = remote{w.mr.Addr() + uint64(w.base), w.mr.RKey(), areaBytes}.appendTo(private)
	}
	if s.run.mode != modeForward {
		forSwitch, err := s.host.ConnManager(ctx).Listen(switchService)
		if err != nil {
			return err
		}
		ctx.Runtime().Go("switch", func() { _ = acceptEach(ctx, pd, forSwitch, s.run.plan.params, nil) }) // the goroutine ends with the host
	}
	return acceptEach(ctx, pd, l, s.run.plan.params, private)
}

// acceptEach accepts connections with parameters p until Accept returns an error. private is the
// private data of the answers.
func acceptEach(ctx verbs.Context, pd verbs.PD, l rdmacm.Listener, p rdmacm.Params, private []byte) error {
	for n := 0; ; n++ {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return err
		}
		// Each connection is accepted in its own thread: a dialer may be dead or behind a link that
		// is cut, and other dialers must not wait for it.
		ctx.Runtime().Go(fmt.Sprintf("accept-%d", n), func() {
			cq, err := ctx.CreateCQ(1)
			if err != nil {
				return // the NIC has crashed
			}
			qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
			if err != nil {
				return
			}
			_ = req.Accept(qp, p, private, ctx.Runtime().Now().Add(dialPatience)) // if this fails, the client connects again
		})
	}
}

// serveWords starts the application of the memory server ms0, at the beginning or after a crash. It
// registers memory, calls placed with the region, and accepts connections to the switch's service
// and to that of the clients. It does nothing else.
func (e *env) serveWords(memory []byte, service string, p rdmacm.Params, placed func(mr verbs.MR)) {
	host := e.rack.Host("ms0")
	host.Go("server", true, func(ctx verbs.Context) {
		pd, err := ctx.AllocPD()
		var mr verbs.MR
		if err == nil {
			mr, err = pd.RegMR(memory, len(memory), wordAccess)
		}
		if err == nil {
			placed(mr)
		}
		for _, name := range []string{switchService, service} {
			var l rdmacm.Listener
			if err == nil {
				l, err = host.ConnManager(ctx).Listen(name)
			}
			if err != nil {
				e.fail("server: %w", err)
				return
			}
			private := remoteOf(mr).appendTo(nil)
			ctx.Runtime().Go(name, func() { _ = acceptEach(ctx, pd, l, p, private) }) // the goroutine ends with the host
		}
	})
}
