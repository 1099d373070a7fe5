package live

import (
	"context"
	"sync"
	"time"
)

// Source reads one rack for any number of callers: those that come within MaxAge share a Reading.
// Callers must not change it.
type Source struct {
	// Name is the rack's name.
	Name string
	// MaxAge is how old a Reading may be that a caller gets; 0 means that each caller gets its own.
	MaxAge time.Duration
	// Read is the function Read of this package if it is nil. Only tests set it.
	Read func(ctx context.Context, name string) (*Reading, error)

	mu   sync.Mutex // held while the rack is read, which takes a bounded time
	at   time.Time  // when the last reading ended
	last *Reading
	err  error
}

// Get returns a Reading that is at most MaxAge old, or the error of Read. The end of ctx does not end
// a reading for which others may wait.
func (s *Source) Get(ctx context.Context) (*Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.at.IsZero() || time.Since(s.at) >= s.MaxAge {
		read := s.Read
		if read == nil {
			read = Read
		}
		s.last, s.err = read(context.WithoutCancel(ctx), s.Name)
		s.at = time.Now()
	}
	return s.last, s.err
}
