package memservice_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Each word of a table is taken once, the first free one first. A table outside of the region, and an
// owner that was fenced, take nothing.
func TestTake(t *testing.T) { bothWays(t, testTake) }

func testTake(t *testing.T, opt simrack.Options) {
	const off, words = 64, 600 // more than the service reads at a time
	memory := make([]byte, off+8*words)
	for i := range 590 {
		if i != 3 {
			memory[off+8*i] = 1
		}
	}
	r := newRigBy(t, memservice.Config{Buffer: memory}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		soon := func() clock.Time { return ctx.Runtime().Now().Add(time.Second) }
		var got []int
		for n := range uint64(11) {
			i, err := memservice.Take(ctx, m, r.srv.Addr(), 5, uint32(n+1), off, words, n<<40|7, soon())
			if err != nil || binary.LittleEndian.Uint64(memory[off+8*i:]) != n<<40|7 {
				t.Fatalf("word %d: %v, has %x", i, err, memory[off+8*i:][:8])
			}
			got = append(got, i)
		}
		if want := []int{3, 590, 591, 592, 593, 594, 595, 596, 597, 598, 599}; !slices.Equal(got, want) {
			t.Errorf("taken: %v, want %v", got, want)
		}
		before := slices.Clone(memory)
		if _, err := memservice.Take(ctx, m, r.srv.Addr(), 5, 20, off, words, 9, soon()); !errors.Is(err, memservice.ErrFull) {
			t.Errorf("a full table: %v", err)
		}
		clear(memory[off:][:8])
		clear(before[off:][:8])
		for name, o := range map[string]uint64{"behind": off + 1, "far behind": 1 << 63, "around": ^uint64(0) - 8} {
			if _, err := memservice.Take(ctx, m, r.srv.Addr(), 5, 20, o, words, 9, soon()); err == nil || errors.Is(err, memservice.ErrFull) {
				t.Errorf("a table that is %s the region: %v", name, err)
			}
		}
		if err := memservice.Fence(ctx, m, r.srv.Addr(), 5, soon()); err != nil {
			t.Error(err)
		}
		if _, err := memservice.Take(ctx, m, r.srv.Addr(), 5, 20, off, words, 9, soon()); !errors.Is(err, memservice.ErrFenced) {
			t.Errorf("an owner that was fenced: %v", err)
		}
		if !slices.Equal(memory, before) {
			t.Error("a request that was refused has changed memory")
		}
	})
}

// A request that is repeated, because its answer was lost, gets the word that it has got before; an
// earlier one gets none. Requests of other owners have numbers of their own.
func TestTakeAgain(t *testing.T) { bothWays(t, testTakeAgain) }

func testTakeAgain(t *testing.T, opt simrack.Options) {
	const words = 8
	memory := make([]byte, 8*words)
	r := newRigBy(t, memservice.Config{Buffer: memory}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		take := func(owner, number uint32) (int, error) {
			return memservice.Take(ctx, m, r.srv.Addr(), owner, number, 0, words, uint64(owner)<<8|uint64(number), ctx.Runtime().Now().Add(time.Second))
		}
		for i, c := range []struct {
			owner, number uint32
			want          int
		}{{5, 1, 0}, {5, 1, 0}, {6, 1, 1}, {5, 2, 2}, {5, 2, 2}, {6, 1, 1}, {5, 1, -1}, {5, 4, 3}, {5, 3, -1}, {7, 9, 4}} {
			got, err := take(c.owner, c.number)
			if c.want < 0 && err == nil || c.want >= 0 && (err != nil || got != c.want) {
				t.Errorf("request %d: number %d of owner %d gets word %d, %v; want %d", i, c.number, c.owner, got, err, c.want)
			}
			if i == 5 { // a connection of the owner does not make the service forget
				if _, err := r.dialOwned(ctx, m, memservice.Claim{Owner: 6}); err != nil {
					t.Error(err)
				}
			}
		}
		if got, err := take(6, 1); err != nil || got != 1 {
			t.Errorf("after a connect: word %d, %v", got, err)
		}
		for i, want := range []uint64{5<<8 | 1, 6<<8 | 1, 5<<8 | 2, 5<<8 | 4, 7<<8 | 9, 0, 0, 0} {
			if has := binary.LittleEndian.Uint64(memory[8*i:]); has != want {
				t.Errorf("word %d: %#x, want %#x", i, has, want)
			}
		}
	})
}
