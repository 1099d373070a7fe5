package cli

import "testing"

func TestParseMemaslap(t *testing.T) {
	const text = "servers: cn0:11211\nthreads count: 1\ncmd_get: 1000\ncmd_set: 2048\nget_misses: 3\nverify_misses: 4\nverify_failed: 5\nwritten_bytes: 9\n\nRun time: 0.7s Ops: 3048"
	got, err := parseMemaslap(text)
	if err != nil || got.Gets != 1000 || got.Keys != 2048 || got.Missed != 7 || got.Wrong != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "cmd_get: 1\n", "<12 CLIENT_ERROR bad command line format\n" + text} {
		if _, err := parseMemaslap(bad); err == nil {
			t.Errorf("%.40q is taken for a result", bad)
		}
	}
}
