package main

import (
	"regexp"
	"strings"
	"testing"
)

func report(t *testing.T, stream string, skips int) (string, bool) {
	t.Helper()
	var out strings.Builder
	tl := newTally(&out, regexp.MustCompile("race detector"))
	if err := read(strings.NewReader(stream), tl); err != nil {
		t.Fatal(err)
	}
	err := tl.end(skips)
	return out.String(), err == nil
}

func TestReportCounts(t *testing.T) {
	stream := `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:3: the race detector allocates\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestS","Output":"\u001b[32mSUCCESS!\u001b[0m -- 7 Passed | 0 Failed | 0 Pending | 1 Skipped\n"}
{"Action":"pass","Package":"p","Test":"TestS"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`
	out, ok := report(t, stream, 2)
	if !ok || !strings.Contains(out, "9 passed, 0 failed, 3 skipped") || !strings.Contains(out, "needs root") {
		t.Errorf("ok=%v\n%s", ok, out)
	}
	if out, ok := report(t, stream, 1); ok {
		t.Errorf("an unexpected skip passed:\n%s", out)
	}
}

func TestReportCountsABrokenSummary(t *testing.T) {
	stream := `{"Action":"output","Package":"p","Test":"TestS","Output":"Running Suite: s - /e2e/s\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"\u001b[32mSUCCESS!\u001b[0m -- 60 Passed | a line of the guest\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"0 Failed | 0 Pending | 2 "}
{"Action":"output","Package":"p","Test":"TestS","Output":"Skipped\n"}
{"Action":"pass","Package":"p","Test":"TestS"}
{"Action":"pass","Package":"p"}
`
	if out, ok := report(t, stream, 2); !ok || !strings.Contains(out, "61 passed, 0 failed, 2 skipped") {
		t.Errorf("ok=%v\n%s", ok, out)
	}
	if out, ok := report(t, stream, 0); ok {
		t.Errorf("two skips passed:\n%s", out)
	}
}

func TestReportFails(t *testing.T) {
	for name, stream := range map[string]string{
		"a test failed":   `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}`,
		"a package broke": `{"Action":"fail","Package":"p"}`,
		"nothing ran":     "no Go files",
		"no test ran":     `{"Action":"pass","Package":"p"}`,
		"a suite without summary": `{"Action":"output","Package":"p","Test":"TestS","Output":"Running Suite: s - /e2e/s\n"}` + "\n" +
			`{"Action":"pass","Package":"p","Test":"TestS"}` + "\n" + `{"Action":"pass","Package":"p"}`,
		"a package never ended": `{"Action":"start","Package":"p"}` + "\n" + `{"Action":"start","Package":"q"}` + "\n" +
			`{"Action":"pass","Package":"q","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"q"}`,
	} {
		if out, ok := report(t, stream+"\n", -1); ok {
			t.Errorf("%s: reported as well:\n%s", name, out)
		}
	}
}

func TestReportShowsWhatNeverEnded(t *testing.T) {
	stream := `{"Action":"output","Package":"p","Test":"TestDone","Output":"all is well\n"}
{"Action":"pass","Package":"p","Test":"TestDone"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out after 15m0s\n"}
{"Action":"output","Package":"q","Test":"TestB","Output":"of another package\n"}
{"Action":"fail","Package":"p","Elapsed":900}
`
	out, ok := report(t, stream, -1)
	if ok || !strings.Contains(out, "TestA\npanic: test timed out") || strings.Contains(out, "all is well") || strings.Contains(out, "another") {
		t.Errorf("ok=%v\n%s", ok, out)
	}
}
