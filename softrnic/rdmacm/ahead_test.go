package rdmacm

import (
	"math/rand/v2"
	"testing"
)

// An offer is read as it was written if there is room behind the application's data, and no data of
// an application and no padding is taken for an offer that is not there.
func TestAheadInPrivateData(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		field := make([]byte, 8+r.IntN(190))
		used := r.IntN(len(field) + 1)
		for i := range used {
			field[i] = byte(r.Uint32())
		}
		if got := aheadOf(field, used); got != 0 {
			t.Fatalf("padding of %d bytes is an offer of %d", len(field)-used, got)
		}
		ahead := []int{0, 1, 512, maxAhead, maxAhead + 9}[r.IntN(5)]
		put := putAhead(field, used, ahead)
		if want := ahead > 0 && used+aheadLen <= len(field); put != want {
			t.Fatalf("%d used of %d: put %v, want %v", used, len(field), put, want)
		}
		want := 0
		if put {
			want = min(ahead, maxAhead)
		}
		if got := aheadOf(field, used); got != want {
			t.Fatalf("%d used of %d: offer %d, want %d", used, len(field), got, want)
		}
	}
	full := []byte{1, 0x5e, 0x1e, 2, 0} // data of an application that look like an offer
	if got := aheadOf(full, len(full)); got != 0 {
		t.Errorf("an application's data are an offer of %d", got)
	}
}

// Both sides use selective retransmission if both offer it.
func TestAgreeOnAhead(t *testing.T) {
	for _, c := range [][3]int{{0, 0, 0}, {512, 0, 0}, {0, 512, 0}, {512, 256, 256}} {
		if got := (Endpoint{Ahead: c[0]}).Agree(Endpoint{Ahead: c[1]}).Ahead; got != c[2] {
			t.Errorf("%d and %d agree on %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
