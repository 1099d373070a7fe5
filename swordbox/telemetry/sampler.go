package telemetry

// Sampler says which packets are counted: one of Every, by turns or by chance.
type Sampler struct {
	// Every is how many packets there are for each one that is counted; 0 and 1 count all.
	Every uint64
	// Chance is true if each packet is counted with a probability of 1/Every, independently of the
	// others; otherwise each Every-th one is counted.
	Chance bool

	passed uint64 // packets since the last one that was counted by turns
	state  uint64 // state of the generator of random numbers
}

// NewSampler makes a Sampler. seed decides which packets are counted by chance.
func NewSampler(every uint64, chance bool, seed uint64) Sampler {
	return Sampler{Every: every, Chance: chance, state: seed}
}

// Take returns how many of the next n packets are counted.
func (s *Sampler) Take(n int) (taken int) {
	switch {
	case s.Every <= 1:
		return n
	case !s.Chance:
		s.passed += uint64(n)
		taken = int(s.passed / s.Every)
		s.passed %= s.Every
		return taken
	}
	for range n {
		x := mix(s.state)
		s.state += 0x9e3779b97f4a7c15
		if x%s.Every == 0 {
			taken++
		}
	}
	return taken
}
