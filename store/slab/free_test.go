package slab

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A queue gives back what was put in, in this order, and does not grow while it holds little.
func TestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q Queue[int]
	var want []int
	next, most := 0, 0
	for range 20000 {
		switch rng.IntN(5) {
		case 0, 1:
			if len(want) < 40 {
				q.Push(next)
				want = append(want, next)
				next++
			}
		case 2, 3:
			v, ok := q.Pop()
			if ok != (len(want) > 0) || ok && v != want[0] {
				t.Fatalf("Pop gives %d, %v; want the first of %v", v, ok, want)
			}
			if ok {
				want = want[1:]
			}
		case 4:
			if n := rng.IntN(7) + 2; rng.IntN(20) == 0 {
				match := func(v int) bool { return v%n == 0 }
				q.Remove(match)
				want = slices.DeleteFunc(slices.Clone(want), match)
			}
		}
		if q.Len() != len(want) {
			t.Fatalf("%d elements, want %d", q.Len(), len(want))
		}
		most = max(most, cap(q.list))
	}
	if next < 5000 || most > 256 {
		t.Errorf("%d elements went through, and the queue has room for %d", next, most)
	}
}

func freeOf(counts ...int) *Free[[2]int] {
	f := new(Free[[2]int])
	for server, n := range counts {
		for k := range n {
			f.Push(server, [2]int{server, k})
		}
	}
	return f
}

// Places come from the server that is named, from all in turn, or by weights; none comes twice.
func TestFree(t *testing.T) {
	f := freeOf(3, 0, 2)
	var got [][2]int
	take := func(v [2]int, ok bool) {
		if ok {
			got = append(got, v)
		}
	}
	take(f.Pop(2))
	take(f.Pop(1))
	take(f.Pop(7))
	for range 5 {
		take(f.Pop(Anywhere))
	}
	if want := [][2]int{{2, 0}, {0, 0}, {2, 1}, {0, 1}, {0, 2}}; !slices.Equal(got, want) || f.Len(Anywhere) != 0 {
		t.Errorf("places %v, want %v", got, want)
	}
}

func TestFreeWeighed(t *testing.T) {
	f := freeOf(1000, 1000, 1000, 0)
	var n [4]int
	for range 1100 {
		v, ok := f.PopWeighed([]int64{8, 3, 0, 5})
		if !ok {
			t.Fatal("no place")
		}
		n[v[0]]++
	}
	if n[2] != 0 || n[3] != 0 || n[0] < 795 || n[0] > 805 || n[0]+n[1] != 1100 {
		t.Errorf("places of the servers with weights 8, 3, 0, and 5 with an empty one: %v", n)
	}
	if f.Len(0) != 1000-n[0] || f.Len(Anywhere) != 1900 {
		t.Errorf("%d and %d left", f.Len(0), f.Len(Anywhere))
	}
	if _, ok := f.PopWeighed([]int64{0, 0, 0, 9}); ok {
		t.Error("a place of a server without weight")
	}
}

func TestFreeAllAndRemove(t *testing.T) {
	f := freeOf(2, 3)
	f.Pop(1)
	f.Remove(func(v [2]int) bool { return v == [2]int{0, 0} })
	var got [][2]int
	f.All(func(v [2]int) { got = append(got, v) })
	if want := [][2]int{{0, 1}, {1, 1}, {1, 2}}; !slices.Equal(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
}
