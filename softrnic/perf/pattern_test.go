package perf

import (
	"bytes"
	"testing"
)

// Every wrong, swapped or shifted byte is found, at every length.
func TestPatternFindsDamage(t *testing.T) {
	p := Pattern{Seed: 42}
	for n := 1; n <= 70; n++ {
		b := make([]byte, n)
		p.Fill(b, 7)
		if off := p.Check(b, 7); off != -1 {
			t.Fatalf("length %d: undamaged message is wrong at %d", n, off)
		}
		for i := range b {
			b[i] ^= 0x10
			if off := p.Check(b, 7); off != i {
				t.Fatalf("length %d: byte %d is damaged, Check says %d", n, i, off)
			}
			b[i] ^= 0x10
		}
	}
}

func TestPatternTellsMessagesAndPlacesApart(t *testing.T) {
	p := Pattern{Seed: 1}
	a, b := make([]byte, 64), make([]byte, 64)
	for msg := uint64(0); msg < 200; msg++ {
		p.Fill(a, msg)
		p.Fill(b, msg+1)
		if p.Check(b, msg) < 0 {
			t.Fatalf("message %d passes for %d", msg+1, msg)
		}
		if copy(b, a[8:]); p.Check(b[:56], msg) < 0 {
			t.Fatalf("message %d passes when it is shifted by a word", msg)
		}
	}
	Pattern{Seed: 2}.Fill(b, 3)
	if p.Fill(a, 3); bytes.Equal(a, b) {
		t.Error("seeds 1 and 2 give the same message")
	}
}

func BenchmarkPatternCheck(b *testing.B) {
	buf := make([]byte, 64<<10)
	Pattern{Seed: 1}.Fill(buf, 1)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if (Pattern{Seed: 1}).Check(buf, 1) >= 0 {
			b.Fatal("damaged")
		}
	}
}
