package switch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/scenario/history"
)

// The memory that lockers use: the words of the history, and for each a guard, which only the
// holder of its lock touches.
const (
	words     = 4 // the last one is a counter, the others are locks
	counter   = words - 1
	wordsOff  = 0x1000
	guardsOff = 0x8000
	stride    = 64
)

// lockPlan is what a locker does, as JSON on its standard input.
type lockPlan struct {
	// ID is its number, from 1: the upper half of its tags.
	ID     int        `json:"id"`
	Server netip.Addr `json:"server"`
	// Rounds is how many it does at least, and For how long, with pauses.
	Rounds int           `json:"rounds"`
	For    time.Duration `json:"for"`
	Seed   uint64        `json:"seed"`
	// Die is where it kills itself, DieIn the first round in which it may.
	Die   step `json:"die"`
	DieIn int  `json:"dieIn"`
	// Bury are lockers that have died: their locks are released, and nothing else is done.
	Bury []int `json:"bury"`
	// Read reads all words once, and nothing else.
	Read bool `json:"read"`
}

// step is a place in a round.
type step string

const (
	never     step = ""
	before    step = "before"    // it has decided to take the lock, and not asked yet
	asked     step = "asked"     // the CAS has left, its answer has not come
	inside    step = "inside"    // it has the lock, and has written into the guard
	releasing step = "releasing" // the release has left, its answer has not come
)

// record is a line of a locker's output: the call and the end of an operation, or a violation.
type record struct {
	Client int          `json:"c"`
	N      int          `json:"n"`
	At     int64        `json:"t"` // of a clock that all processes of the machine share
	End    bool         `json:"e,omitempty"`
	Word   int          `json:"w"`
	Kind   history.Kind `json:"k"`
	Value  uint64       `json:"v,omitempty"`
	Cmp    uint64       `json:"m,omitempty"`
	Answer uint64       `json:"a,omitempty"`
	// Bad is something that must not be, Failed how often the queue pair failed, Done how many
	// rounds were done.
	Bad     string        `json:"bad,omitempty"`
	Failed  int           `json:"failed,omitempty"`
	Done    int           `json:"done,omitempty"`
	Longest time.Duration `json:"longest,omitempty"`
}

// lockerRun is a running locker.
type lockerRun struct {
	lockPlan
	r       *rand.Rand
	ctx     *ipc.Context
	c       *conn
	out     *json.Encoder
	n       int
	tags    uint64
	round   int
	failed  int
	longest time.Duration
}

func locker(in io.Reader, out io.Writer) error {
	l := &lockerRun{out: json.NewEncoder(out)}
	if err := json.NewDecoder(in).Decode(&l.lockPlan); err != nil {
		return err
	}
	l.r = rand.New(rand.NewPCG(l.Seed, uint64(l.ID)))
	defer time.AfterFunc(lifeLimit, l.tell).Stop()
	var err error
	if l.ctx, err = ipc.Open(ipc.Config{}); err != nil {
		return err
	}
	defer l.ctx.Close()
	switch {
	case l.Read:
		for w := range words {
			l.sure(w, history.Op{Kind: history.Read})
		}
	case len(l.Bury) > 0:
		l.bury()
	default:
		for begin := time.Now(); l.round < l.Rounds || time.Since(begin) < l.For; l.round++ {
			if l.For > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if w := l.r.IntN(words); w == counter {
				l.do(w, history.Op{Kind: history.FetchAdd, Value: 1})
			} else {
				l.lock(w)
			}
		}
	}
	return l.out.Encode(record{Client: l.ID, Failed: l.failed, Done: l.round, Longest: l.longest})
}

const (
	// lifeLimit bounds the life of a locker.
	lifeLimit = 2 * time.Minute
	// exitHung is how one ends that has lived so long.
	exitHung = 3
)

// tell ends a locker that hangs, and says where.
func (l *lockerRun) tell() {
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // the exit code says it too
	os.Exit(exitHung)
}

// now is a clock that all processes of the machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

func (l *lockerRun) write(r record) {
	r.Client = l.ID
	if err := l.out.Encode(r); err != nil {
		panic(err) // nobody reads any more
	}
}

func (l *lockerRun) bad(format string, args ...any) {
	l.write(record{Bad: fmt.Sprintf(format, args...)})
}

// dieAt kills this process, if it is time.
func (l *lockerRun) dieAt(s step) {
	if l.Die == s && l.round >= l.DieIn {
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL) // which cannot fail, nor return
		select {}
	}
}

// connect makes the connection, if there is none.
func (l *lockerRun) connect() {
	for end := time.Now().Add(time.Minute); l.c == nil; time.Sleep(20 * time.Millisecond) {
		c, err := newConn(l.ctx, l.Server)
		if err == nil {
			l.c = c
			return
		}
		if time.Now().After(end) {
			panic(fmt.Sprintf("no connection: %v", err))
		}
	}
}

// exec does one operation at an offset of the memory. ok false: nobody knows what became of it.
func (l *lockerRun) exec(off uint64, op history.Op, posted func()) (answer uint64, ok bool) {
	l.connect()
	kinds := map[history.Kind]verbs.WROpcode{history.Read: verbs.OpRead, history.Write: verbs.OpWrite, history.CmpSwap: verbs.OpCmpSwap, history.FetchAdd: verbs.OpFetchAdd}
	compareAdd, swap := op.Compare, op.Value
	if op.Kind == history.FetchAdd {
		compareAdd = op.Value
	}
	begin := time.Now()
	err := l.c.mr.Store64(0, op.Value)
	if err == nil {
		err = l.c.post(kinds[op.Kind], off, compareAdd, swap)
	}
	if err == nil {
		posted()
		err = l.c.wait(l.ctx)
	}
	if err != nil {
		l.failed++
		_ = l.c.close() // it has failed
		l.c = nil
		if !errors.Is(err, errLost) {
			l.bad("%v: %v", op, err)
		}
		time.Sleep(5 * time.Millisecond) // nothing of the old queue pair is in the links any more
		return 0, false
	}
	l.longest = max(l.longest, time.Since(begin))
	answer, err = l.c.mr.Load64(0)
	return answer, err == nil
}

// do does an operation on a word, as part of its history.
func (l *lockerRun) do(w int, op history.Op, posted ...func()) (uint64, bool) {
	l.connect() // not a part of the operation
	l.n++
	n := l.n
	l.write(record{N: n, At: now(), Word: w, Kind: op.Kind, Value: op.Value, Cmp: op.Compare})
	answer, ok := l.exec(uint64(wordsOff+stride*w), op, func() {
		for _, f := range posted {
			f()
		}
	})
	if ok {
		l.write(record{N: n, At: now(), End: true, Word: w, Answer: answer})
	}
	return answer, ok
}

// sure repeats an operation until its answer is known; repeating it must do no harm.
func (l *lockerRun) sure(w int, op history.Op) uint64 {
	for {
		if v, ok := l.do(w, op); ok {
			return v
		}
	}
}

// guard does an operation on the guard of a word until it has an answer.
func (l *lockerRun) guard(w int, kind history.Kind, v uint64) uint64 {
	for {
		if got, ok := l.exec(uint64(guardsOff+stride*w), history.Op{Kind: kind, Value: v}, func() {}); ok {
			return got
		}
	}
}

// tag makes a number that nobody has used.
func (l *lockerRun) tag() uint64 {
	l.tags++
	return uint64(l.ID)<<32 | l.tags
}

// lock takes a lock, goes inside, and releases it.
func (l *lockerRun) lock(w int) {
	l.dieAt(before)
	tag, mine := l.acquire(w)
	if !mine {
		return
	}
	if v := l.guard(w, history.Read, 0); v != 0 {
		l.bad("lock %d granted to %#x while %#x is inside", w, tag, v)
	}
	l.guard(w, history.Write, tag)
	l.dieAt(inside)
	for range 1 + l.r.IntN(3) {
		if v := l.guard(w, history.Read, 0); v != tag {
			l.bad("lock %d: %#x is inside together with %#x", w, v, tag)
		}
	}
	l.guard(w, history.Write, 0)
	posted := func() { l.dieAt(releasing) }
	if l.r.IntN(2) == 0 {
		if _, ok := l.do(w, history.Op{Kind: history.Write}, posted); ok {
			return
		}
	}
	// Whether an earlier release without an answer was done or not: this one releases nobody
	// else's.
	for {
		v, ok := l.do(w, history.Op{Kind: history.CmpSwap, Compare: tag}, posted)
		if ok {
			if v != tag && uint32(v>>32) == uint32(l.ID) {
				l.bad("lock %d: %#x in place of %#x", w, v, tag)
			}
			return
		}
	}
}

// tries bounds the attempts to take a lock.
const tries = 400

// acquire tries to take a lock. An attempt without an answer may have worked: the next one finds
// out.
func (l *lockerRun) acquire(w int) (tag uint64, mine bool) {
	tag = l.tag()
	sent := map[uint64]bool{}
	for range tries {
		sent[tag] = true
		v, ok := l.do(w, history.Op{Kind: history.CmpSwap, Value: tag}, func() { l.dieAt(asked) })
		switch {
		case ok && v == 0:
			return tag, true
		case ok && sent[v] && v != tag:
			return v, true // that attempt had worked
		case !ok:
			tag = l.tag()
		}
		time.Sleep(time.Duration(500+l.r.IntN(3000)) * time.Microsecond)
	}
	for t := range sent { // a late one must not come behind the giving up
		if t != tag {
			if v := l.sure(w, history.Op{Kind: history.Read}); v == t {
				return t, true
			}
		}
	}
	return 0, false
}

// bury releases the locks of the dead.
func (l *lockerRun) bury() {
	dead := map[uint32]bool{}
	for _, id := range l.Bury {
		dead[uint32(id)] = true
	}
	for w := range counter {
		v := l.sure(w, history.Op{Kind: history.Read})
		if !dead[uint32(v>>32)] {
			continue
		}
		l.guard(w, history.Write, 0)
		l.sure(w, history.Op{Kind: history.CmpSwap, Compare: v})
	}
}
