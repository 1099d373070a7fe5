package experiment

import (
	"context"
	"strings"
	"testing"
)

// wordsPlatform is a rack on which `won` CAS succeed in a second.
type wordsPlatform struct {
	Platform
	won float64
}

func (wordsPlatform) On() string       { return OnRack }
func (wordsPlatform) Describe() string { return "fake" }

func (p wordsPlatform) Words(context.Context, Words) (WordsResult, error) {
	return WordsResult{CAS: 1000, Succeeded: p.won}, nil
}

// A row in which no lock was taken counts for nothing.
func TestLocksThatNoClientTakes(t *testing.T) {
	for won, fails := range map[float64]bool{0: true, 10: false} {
		b := oneLock.New().(*wordBody)
		b.names, b.clients = []string{"published"}, []int{4}
		if err := b.Check(Place{On: OnRack, Hosts: 4}); err != nil {
			t.Fatal(err)
		}
		r := oneLock.Report(wordsPlatform{won: won})
		if err := b.Run(t.Context(), wordsPlatform{won: won}, r); err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); (err != nil) != fails || fails && !strings.Contains(err.Error(), "published, 0/1 words, 4 clients: no CAS succeeded") {
			t.Errorf("%g locks a second: %v", won, err)
		}
	}
}
