package scenario

import "fmt"

// teleSample says which packets the rules take: one of every, by turns or by chance. seed is that of
// the first host; each host has the next one.
type teleSample struct {
	every  int
	chance bool
	seed   int
}

// keys returns the keys of the rule of a host that ask for the sample, with a comma in front.
func (s *teleSample) keys(host int) string {
	switch {
	case s.every == 1:
		return ""
	case !s.chance:
		return fmt.Sprintf(", sample: %d", s.every)
	}
	return fmt.Sprintf(", sample: %d, choose: chance, seed: %d", s.every, s.seed+host)
}

// teleTurns says of the frames of a host, one after the other, whether they belong to the sample.
type teleTurns struct {
	teleSample
	passed int    // frames since the last one that was taken by turns
	state  uint64 // state of the generator that takes frames by chance
}

func (s *teleSample) turns(host int) teleTurns { return teleTurns{*s, 0, uint64(s.seed + host)} }

func (t *teleTurns) next() bool {
	switch {
	case t.every == 1:
		return true
	case !t.chance:
		t.passed = (t.passed + 1) % t.every
		return t.passed == 0
	}
	t.state += 0x9e3779b97f4a7c15 // splitmix64
	h := t.state
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return (h^h>>31)%uint64(t.every) == 0
}
