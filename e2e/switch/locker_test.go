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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The layout of the memory that lockers use: the words of the history, and for each word a guard,
// which only the holder of its lock accesses.
const (
	words     = 4 // the last one is a counter, the others are locks
	counter   = words - 1
	wordsOff  = 0x1000
	guardsOff = 0x8000
	stride    = 64
)

// lockPlan is the configuration of a locker, as JSON at the beginning of its standard input.
type lockPlan struct {
	// ID is the locker's number, from 1. It is the upper half of the locker's tags.
	ID     int        `json:"id"`
	Server netip.Addr `json:"server"`
	// Rounds is the least number of rounds. With More there are further rounds, with pauses, until the
	// standard input ends.
	Rounds int    `json:"rounds"`
	More   bool   `json:"more"`
	Seed   uint64 `json:"seed"`
	// Die is the place at which the locker kills itself. DieIn is the first round in which it may.
	Die   step `json:"die"`
	DieIn int  `json:"dieIn"`
	// Bury: this locker only releases the locks of lockers that have died. It reads their numbers from
	// its standard input.
	Bury bool `json:"bury"`
	// Read: this locker only reads all words once.
	Read bool `json:"read"`
}

// step is a place in a round.
type step string

const (
	never     step = ""
	before    step = "before"    // before the CAS that takes the lock is sent
	asked     step = "asked"     // the CAS was sent and has no answer yet
	inside    step = "inside"    // the locker has the lock, and has written into the guard
	releasing step = "releasing" // the release was sent and has no answer yet
)

// record is a line of a locker's output: the call and the return of an operation, or a violation.
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
	// Bad is a violation. Failed has the times at which the queue pair has failed. Done is the
	// number of completed rounds.
	Bad     string        `json:"bad,omitempty"`
	Failed  []int64       `json:"failed,omitempty"`
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
	failed  []int64
	longest time.Duration
}

func locker(in io.Reader, out io.Writer) error {
	l := &lockerRun{out: json.NewEncoder(out)}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&l.lockPlan); err != nil {
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
	case l.Bury:
		var id uint32
		for dec.More() {
			if err := dec.Decode(&id); err != nil {
				return err
			}
			l.bury(id)
		}
	default:
		var ended atomic.Bool
		if l.More {
			go func() {
				_ = dec.Decode(new(any)) // only its end counts
				ended.Store(true)
			}()
		}
		for ; l.round < l.Rounds || l.More && !ended.Load(); l.round++ {
			if l.round >= l.Rounds {
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
	// lifeLimit bounds the run time of a locker.
	lifeLimit = 2 * time.Minute
	// exitHung is the exit status of a locker that has reached lifeLimit.
	exitHung = 3
)

// tell ends a locker that hangs, and reports where it hangs.
func (l *lockerRun) tell() {
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // the exit status reports it as well
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
		panic(err) // the process that reads the output has ended
	}
}

func (l *lockerRun) bad(format string, args ...any) {
	l.write(record{Bad: fmt.Sprintf(format, args...)})
}

// dieAt kills this process, if the place and the round are the planned ones.
func (l *lockerRun) dieAt(s step) {
	if l.Die == s && l.round >= l.DieIn {
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL) // SIGKILL cannot fail and does not return
		select {}
	}
}

// connect makes the connection if there is none.
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

// exec runs one operation at an offset of the memory. ok is false if it is unknown whether the
// operation was executed.
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
		l.failed = append(l.failed, now())
		_ = l.c.close() // the connection has failed
		l.c = nil
		if !errors.Is(err, errLost) {
			l.bad("%v: %v", op, err)
		}
		time.Sleep(5 * time.Millisecond) // until no packet of the old queue pair is on a link
		return 0, false
	}
	l.longest = max(l.longest, time.Since(begin))
	answer, err = l.c.mr.Load64(0)
	return answer, err == nil
}

// do runs an operation on a word, and writes it to the history.
func (l *lockerRun) do(w int, op history.Op, posted ...func()) (uint64, bool) {
	l.connect() // the time to connect is not a part of the operation
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

// guard runs an operation on the guard of a word until it has an answer.
func (l *lockerRun) guard(w int, kind history.Kind, v uint64) uint64 {
	for {
		if got, ok := l.exec(uint64(guardsOff+stride*w), history.Op{Kind: kind, Value: v}, func() {}); ok {
			return got
		}
	}
}

// tag returns a number that no locker has used.
func (l *lockerRun) tag() uint64 {
	l.tags++
	return uint64(l.ID)<<32 | l.tags
}

// lock takes a lock, writes and checks its guard, and releases it.
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
	// An earlier release without an answer may have been executed. Repeating it is safe, because it
	// compares with this locker's tag.
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

// acquire tries to take a lock. If an attempt without an answer has succeeded, a later attempt
// finds this locker's tag in the word.
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
			return v, true // an earlier attempt has succeeded
		case !ok:
			tag = l.tag()
		}
		time.Sleep(time.Duration(500+l.r.IntN(3000)) * time.Microsecond)
	}
	for t := range sent { // an attempt that is executed late must not take the lock after this call has returned
		if t != tag {
			if v := l.sure(w, history.Op{Kind: history.Read}); v == t {
				return t, true
			}
		}
	}
	return 0, false
}

// lateRequests is longer than the requests of a locker that has died are in flight: links reorder by
// 1 ms, and the switch holds a CAS for at most 20 ms.
const lateRequests = 100 * time.Millisecond

// bury releases the locks of a locker that has died. First it waits, because the switch may grant a
// lock to a request that the locker has sent before its death.
func (l *lockerRun) bury(dead uint32) {
	time.Sleep(lateRequests)
	for w := range counter {
		v := l.sure(w, history.Op{Kind: history.Read})
		if uint32(v>>32) != dead {
			continue
		}
		l.guard(w, history.Write, 0)
		l.sure(w, history.Op{Kind: history.CmpSwap, Compare: v})
	}
}
