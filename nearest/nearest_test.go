package nearest

import (
	"slices"
	"strings"
	"testing"
)

func TestMeant(t *testing.T) {
	kinds := []string{"loss", "duplicate", "delay", "reorder", "corrupt", "rate", "blackhole", "ecn", "pause", "tear"}
	tests := []string{"write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "onerma_read_bw", "contend"}
	for _, c := range []struct {
		word  string
		known []string
		want  string
	}{
		{"los", kinds, "did you mean loss? "},
		{"LOSS", kinds, "did you mean loss? "},
		{"lsos", kinds, "did you mean loss? "},
		{"dup", kinds, "did you mean duplicate? "},
		{"blackhoel", kinds, "did you mean blackhole? "},
		{"latency", kinds, "did you mean delay? "},
		{"zzz", kinds, ""},
		{"", kinds, ""},
		{"-_", kinds, ""},
		{strings.Repeat("loss", 100), kinds, ""},
		{"write-bw", tests, "did you mean write_bw? "},
		{"bw_write", tests, "did you mean write_bw? "},
		{"write_latency", tests, "did you mean write_lat? "},
		{"wirte_bw", tests, "did you mean write_bw? "},
		{"raed_lat", tests, "did you mean read_lat? "},
		{"msO", []string{"md0", "ms0", "ms1"}, "did you mean ms0 or ms1? "},
		{"cn10", []string{"cn0", "cn1", "ms0"}, ""},
		{"cn1", []string{"cn10", "cn11", "ms0"}, ""},
		{"leaf12", []string{"leaf0", "leaf1"}, ""},
		{"leaf1", []string{"leaf12", "r-leaf10"}, ""},
		{"eaf1", []string{"leaf1", "leaf2"}, "did you mean leaf1? "},
		{"cn10-rack1", []string{"rack1-cn1", "rack1-cn0"}, ""},
		{"CN10", []string{"cn1", "cn10"}, "did you mean cn10? "},
		{"leaf", []string{"leaf0", "leaf1"}, "did you mean leaf0 or leaf1? "},
		{"ms9", []string{"md0", "ms0", "ms1"}, ""},
		{"cn", []string{"cn0", "cn1", "cn2", "cn3"}, ""},
		{"RC_WRITE_MIDLE", []string{"RC_WRITE_FIRST", "RC_WRITE_MIDDLE", "UC_WRITE_MIDDLE"}, "did you mean RC_WRITE_MIDDLE? "},
		{"ab", []string{"abxy", "abzz", "abcd", "abef"}, ""},
		{"one", []string{"one-a", "one-b", "one-c"}, "did you mean one-a, one-b or one-c? "},
	} {
		if got := Meant(c.word, c.known, map[string]string{"latency": "delay", "mtus": "mtu"}); got != c.want {
			t.Errorf("%q: %q, want %q", c.word, got, c.want)
		}
	}
}

// Word proposes one word or none.
func TestWordIsOne(t *testing.T) {
	if got := Word("msO", []string{"ms0", "ms1"}); got != "" {
		t.Errorf("got %q of two", got)
	}
	if got := Word("msO", []string{"ms0", "cn1"}); got != "ms0" {
		t.Errorf("got %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"loss", "los", 1}, {"loss", "lsos", 1}, {"stop", "top", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Of any word, at most three known words are proposed, and none is empty.
func FuzzWords(f *testing.F) {
	f.Add("los", "loss,rate")
	f.Add("\xff\x00", "a,b,,")
	f.Fuzz(func(t *testing.T, word, known string) {
		list := strings.Split(known, ",")
		if len(list) > 50 || len(known) > 500 {
			return
		}
		got := Words(word, list)
		if len(got) > most || slices.Contains(got, "") {
			t.Errorf("%q of %q: %q", word, list, got)
		}
	})
}
