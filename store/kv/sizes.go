package kv

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Sizes says how long the values of a workload are. Each write draws one size.
type Sizes struct {
	// Min and Max are the smallest and the largest size in bytes.
	Min int `json:"min"`
	Max int `json:"max"`
	// Zipf is the exponent of Zipf's law by which smaller sizes are more frequent than larger ones;
	// 0 means that all sizes are equally frequent.
	Zipf float64 `json:"zipf,omitempty"`
	// List, if not empty, has all sizes that occur, with their shares.
	List []SizeShare `json:"list,omitempty"`

	ranks *Zipf   // the first draw makes it
	sum   float64 // sum of the shares
}

// SizeShare is one size of a list. The sum of the shares in a list may be any number.
type SizeShare struct {
	Size  int     `json:"size"`
	Share float64 `json:"share"`
}

// maxSizes is the greatest length of the list of sizes. maxSize is the greatest size in bytes.
const (
	maxSizes = 1024
	maxSize  = 1 << 30
)

// ParseSizes parses a size, MIN-MAX, zipf:THETA:MIN-MAX, or a list SIZE=SHARE,SIZE=SHARE. number
// parses one size.
func ParseSizes(text string, number func(string) (int, error)) (*Sizes, error) {
	s, err := parseSizes(text, number)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w; want a size like 100, MIN-MAX like 64-4KiB, zipf:THETA:MIN-MAX, or sizes with shares like 64=50,1KiB=30,4KiB=20", err)
	}
	return s, nil
}

func parseSizes(text string, number func(string) (int, error)) (s *Sizes, err error) {
	s = new(Sizes)
	if strings.Contains(text, "=") {
		for part := range strings.SplitSeq(text, ",") {
			size, share, _ := strings.Cut(part, "=")
			e := SizeShare{}
			if e.Size, err = number(strings.TrimSpace(size)); err != nil {
				return nil, err
			}
			if e.Share, err = strconv.ParseFloat(strings.TrimSpace(share), 64); err != nil {
				return nil, fmt.Errorf("share %.20q of size %d is no number", share, e.Size)
			}
			s.List = append(s.List, e)
		}
		s.Min, s.Max = s.List[0].Size, s.List[0].Size
		for _, e := range s.List {
			s.Min, s.Max = min(s.Min, e.Size), max(s.Max, e.Size)
		}
		return s, nil
	}
	if rest, ok := strings.CutPrefix(text, "zipf:"); ok {
		theta, sizes, _ := strings.Cut(rest, ":")
		if s.Zipf, err = strconv.ParseFloat(theta, 64); err != nil {
			return nil, fmt.Errorf("zipf's exponent %.20q is no number", theta)
		}
		text = sizes
	}
	from, to, isRange := strings.Cut(text, "-")
	if s.Min, err = number(from); err != nil {
		return nil, err
	}
	if s.Max = s.Min; isRange {
		s.Max, err = number(to)
	}
	return s, err
}

func (s *Sizes) check() error {
	switch {
	case s.Min < 0 || s.Max > maxSize:
		return fmt.Errorf("sizes from %d to %d bytes: want 0 to %d", s.Min, s.Max, maxSize)
	case s.Min > s.Max:
		return fmt.Errorf("sizes from %d to %d bytes: the smallest comes first", s.Min, s.Max)
	case !(s.Zipf >= 0 && s.Zipf <= maxZipf):
		return fmt.Errorf("zipf's exponent %g of sizes: want 0 to %g", s.Zipf, maxZipf)
	case len(s.List) > maxSizes:
		return fmt.Errorf("%d sizes: want at most %d", len(s.List), maxSizes)
	}
	sum := 0.0
	for _, e := range s.List {
		if !(e.Share >= 0 && e.Share < 1e9) || e.Size < s.Min || e.Size > s.Max {
			return fmt.Errorf("size %d with share %g: want shares of at least 0", e.Size, e.Share)
		}
		sum += e.Share
	}
	if len(s.List) > 0 && sum == 0 {
		return fmt.Errorf("the shares of all sizes are 0")
	}
	return nil
}

func (s *Sizes) draw(r *rand.Rand) int {
	switch {
	case len(s.List) > 0:
		if s.sum == 0 {
			for _, e := range s.List {
				s.sum += e.Share
			}
		}
		x := r.Float64() * s.sum
		for _, e := range s.List {
			if x -= e.Share; x < 0 {
				return e.Size
			}
		}
		return s.List[len(s.List)-1].Size
	case s.Min == s.Max:
		return s.Min
	}
	if s.ranks == nil {
		s.ranks = NewZipf(uint64(s.Max-s.Min)+1, s.Zipf)
	}
	return s.Min + int(s.ranks.rank(r))
}

func (s *Sizes) String() string {
	switch {
	case len(s.List) > 0:
		parts := make([]string, len(s.List))
		for i, e := range s.List {
			parts[i] = fmt.Sprintf("%d=%g", e.Size, e.Share)
		}
		return strings.Join(parts, ",") + " bytes"
	case s.Min == s.Max:
		return fmt.Sprintf("%d bytes", s.Min)
	case s.Zipf > 0:
		return fmt.Sprintf("%d to %d bytes by Zipf %g", s.Min, s.Max, s.Zipf)
	}
	return fmt.Sprintf("%d to %d bytes", s.Min, s.Max)
}

func (c *RunConfig) size(r *rand.Rand) int {
	if c.Sizes == nil {
		return c.Value
	}
	return c.Sizes.draw(r)
}
