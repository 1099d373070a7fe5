package scenario

import "testing"

// Seeds of kvcs replay event by event.
func TestCacheReplays(t *testing.T) {
	s, err := Find("kvcs")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(6) {
		a, b := s.Run(1+seed, Options{Hash: true}), s.Run(1+seed, Options{Hash: true})
		if a.Err != nil || a.Hash != b.Hash || a.Hash == 0 {
			t.Errorf("seed %d: %v, digests %x and %x", 1+seed, a.Err, a.Hash, b.Hash)
		}
	}
}
