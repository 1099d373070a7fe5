package switchd

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/journal"
)

func reopen(t *testing.T, path string) *journalFile {
	t.Helper()
	r, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// The next process finds what one process has written, also without a Close in between.
func TestJournalFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	a := netip.MustParseAddr("10.0.0.1")
	first := reopen(t, path)
	if _, err := first.Move(journal.Flow{Client: a, Server: a, ClientQPN: 5, Oldest: 9}); err != nil || first.renewed {
		t.Fatal(err)
	}
	second := reopen(t, path)
	if flows := second.Former().Flows; len(flows) != 1 || flows[0].ClientQPN != 5 || flows[0].Oldest != 9 || second.renewed {
		t.Errorf("%+v", flows)
	}
}

// A file of another kind or size is replaced, and renewed reports it.
func TestJournalFileOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	for _, n := range []int{100, journal.Size} {
		data := make([]byte, n)
		copy(data, "something else")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := reopen(t, path)
		if !r.renewed || len(r.Former().Flows) != 0 {
			t.Errorf("%d bytes: renewed %v", n, r.renewed)
		}
	}
	if _, err := openJournal(filepath.Join(t.TempDir(), "no", "record")); err == nil {
		t.Error("a journal without a folder")
	}
}
