package layout

import "testing"

// Every change of a list of unused pages changes its word, even if the same page becomes the first
// one again. Otherwise a client that has read the first page's successor earlier could make that
// one the first page now.
func TestEveryChangeOfAListShows(t *testing.T) {
	a, b := At(1, 3*MinPage), At(1, 4*MinPage)
	before := FreeHead(0).Then(a)
	after := before.Then(b).Then(a)
	if before.Place() != a.Offset() || after.Place() != a.Offset() || after == before {
		t.Errorf("%#x, and %#x when page %v is the first again", uint64(before), uint64(after), a)
	}
}
