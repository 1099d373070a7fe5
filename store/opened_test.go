package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// An error that says itself what to do about the memory gets no second, different advice.
func TestNotOpenedGivesOneAdvice(t *testing.T) {
	s := store.Store{Name: "mine"}
	for err, hint := range map[error]bool{
		errors.New("timed out"): true, passive.ErrAbsent: true,
		kv.ErrLost: false, passive.ErrPart: false, passive.ErrForeign: false, passive.ErrServers: false,
	} {
		err = fmt.Errorf("memory server 0: %w", err)
		got := s.NotOpened(err)
		if !errors.Is(got, err) || strings.Contains(got.Error(), "is the store up? `rdmalab mine start`") != hint {
			t.Errorf("%v: got %q, want a hint: %v", err, got, hint)
		}
	}
}
