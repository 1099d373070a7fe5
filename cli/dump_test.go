package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const golden = "../softrnic/wire/testdata/golden/"

// runDumpCmd runs `rdmalab dump` with in as standard input.
func runDumpCmd(in []byte, args ...string) (stdout, stderr string, err error) {
	var out, errOut strings.Builder
	root := rootCmd(dumpCmd())
	root.SetArgs(append([]string{"dump"}, args...))
	root.SetIn(bytes.NewReader(in))
	root.SetOut(&out)
	root.SetErr(&errOut)
	err = root.Execute()
	return out.String(), errOut.String(), err
}

func TestDump(t *testing.T) {
	file := golden + "nak_atomic_rkey.pcap"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{file}, {"-"}} {
		stdout, stderr, err := runDumpCmd(data, args...)
		if err != nil || strings.Count(stdout, " icrc=ok\n") != 2 || !strings.Contains(stdout, "NAK_REM_ACCESS") ||
			!strings.HasPrefix(stderr, "2 RoCEv2 packets: 2 good") {
			t.Errorf("%v: %v\n%s%s", args, err, stdout, stderr)
		}
	}
	stdout, _, err := runDumpCmd(nil, file, file, "--opcode", "rc_fetch_*", "--qpn", "0x116", "--psn", "256", "--host", "192.168.77.1")
	if err != nil || strings.Count(stdout, "RC_FETCH_ADD") != 2 || strings.Count(stdout, "==> ") != 2 {
		t.Errorf("filtered: %v\n%s", err, stdout)
	}
	stdout, _, err = runDumpCmd(nil, file, "-o", "json")
	if err != nil || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, `"icrc":"ok"`) {
		t.Errorf("JSON: %v\n%s", err, stdout)
	}
}

// With --verify, gopacket decodes every packet, too. It decodes the golden captures to the same
// fields.
func TestDumpVerify(t *testing.T) {
	names, err := filepath.Glob(golden + "*.pcap")
	if err != nil || len(names) < 60 {
		t.Fatalf("%d golden captures, %v", len(names), err)
	}
	_, stderr, err := runDumpCmd(nil, append([]string{"--verify"}, names...)...)
	if err != nil || strings.Contains(stderr, "differently") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// If a capture has a bad packet, dump fails without a further message, because the summary reports
// the packet.
func TestDumpBadPacket(t *testing.T) {
	data, err := os.ReadFile(golden + "nak_atomic_rkey.pcap")
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-5] ^= 1
	stdout, stderr, err := runDumpCmd(data, "-", "--bad")
	var code exitCode
	if !errors.As(err, &code) || code != 1 || !strings.Contains(stdout, " icrc=bad\n") || !strings.Contains(stderr, "1 with a wrong ICRC") {
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
}

func TestDumpErrors(t *testing.T) {
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"too few arguments", nil},
		{"no such file", []string{"nowhere.pcap"}},
		{"notes.txt: at byte 0: neither a pcap nor a pcapng file", []string{text}},
		{"is a directory", []string{t.TempDir()}},
		{"standard input: at byte 0", []string{"-"}},
		{`--qpn: "0x1000000" is not a number`, []string{"--qpn", "0x1000000", "-"}},
		{`--psn: "x" is not a number`, []string{"--psn", "x", "-"}},
		{"--host:", []string{"--host", "cn0", "-"}},
		{`"WRITE" is no opcode; write 'RC_WRITE_*'`, []string{"--opcode", "WRITE", "-"}},
		{"output format", []string{"-o", "xml", "-"}},
	} {
		if _, _, err := runDumpCmd(nil, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want in it: %s", tc.args, err, tc.want)
		}
	}
}

// dump prints the dissector of 1RMA, and takes no file with it.
func TestDumpDissector(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dump", "--dissector"}, `Proto("onerma", "1RMA")`},
		{[]string{"dump", "--dissector", "file"}, "error:"},
		{[]string{"dump"}, "error:"},
	} {
		root, out := rootCmd(dumpCmd()), new(bytes.Buffer)
		root.SetOut(out)
		root.SetErr(out)
		root.SetArgs(c.args)
		if err := root.Execute(); err != nil {
			out.WriteString("error: " + err.Error())
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: %q", c.args, out.String())
		}
	}
}

func TestDumpLadder(t *testing.T) {
	file := golden + "nak_atomic_rkey.pcap"
	stdout, stderr, err := runDumpCmd(nil, "--ladder", file)
	lines := strings.Split(stdout, "\n")
	if err != nil || len(lines) != 4 || !strings.Contains(lines[1], "|------->|  +0 RC_FETCH_ADD") ||
		!strings.Contains(lines[2], "|<-------|  +0 RC_ACK") || !strings.HasSuffix(lines[2], "NAK_REM_ACCESS") ||
		!strings.HasPrefix(stderr, "2 RoCEv2 packets: 2 good") {
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
	for _, args := range [][]string{{file, file}, {file, "-o", "json"}, {file, "--time-of-day"}, {file, "--all"}} {
		if stdout, _, err := runDumpCmd(nil, append([]string{"--ladder"}, args...)...); err == nil || stdout != "" {
			t.Errorf("%v: error %v, output %q", args, err, stdout)
		}
	}
}

// The ladder is written as the name of the file says, and a wrong name, or a capture that cannot be read, makes no file.
func TestDumpLadderFile(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"x.svg": "<svg xmlns=", "x.html": "<title>Ladder of loss_write.pcap</title>", "x.txt": "    #      seconds"} {
		to := filepath.Join(dir, name)
		stdout, _, err := runDumpCmd(nil, "--ladder", "-w", to, golden+"loss_write.pcap")
		data, rerr := os.ReadFile(to)
		if err != nil || rerr != nil || stdout != "" || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, %v, output %q, %d bytes", name, err, rerr, stdout, len(data))
		}
	}
	for _, args := range [][]string{
		{"--ladder", "-w", filepath.Join(dir, "y.png"), golden + "loss_write.pcap"},
		{"-w", filepath.Join(dir, "y.svg"), golden + "loss_write.pcap"},
		{"--ladder", "-w", filepath.Join(dir, "y.svg"), "nowhere.pcap"},
	} {
		_, _, err := runDumpCmd(nil, args...)
		if files, _ := filepath.Glob(filepath.Join(dir, "y*")); err == nil || len(files) > 0 {
			t.Errorf("%v: error %v, files %v", args, err, files)
		}
	}
}

// A capture that breaks no rule has one line. The packet that breaks one is named, and the status is 1.
func TestDumpCheck(t *testing.T) {
	file := golden + "rc_send_small.pcap"
	stdout, _, err := runDumpCmd(nil, "--check", file)
	if err != nil || stdout != file+": 8 packets, 1 flow: no packet breaks a rule\n" {
		t.Errorf("%v\n%s", err, stdout)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-5] ^= 1
	stdout, _, err = runDumpCmd(data, "--check", "-")
	var code exitCode
	if !errors.As(err, &code) || code != 1 || !strings.Contains(stdout, "packet 8 at ") || !strings.Contains(stdout, "icrc (IBTA 7.8.1)") {
		t.Errorf("%v\n%s", err, stdout)
	}
	for _, args := range [][]string{{"--check", "--ladder", file}, {"--check", "-o", "json", file}, {"--check", "--all", file}} {
		if stdout, _, err := runDumpCmd(nil, args...); err == nil || stdout != "" {
			t.Errorf("%v: error %v, output %q", args, err, stdout)
		}
	}
}

// capture --ladder draws what the stream has when it ends, and at most --count packets.
func TestCaptureLadder(t *testing.T) {
	var stream bytes.Buffer
	w, err := pcapng.NewWriter(&stream)
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.AddInterface("cn0 up", pcapng.Ethernet)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f := wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, DestQP: 0x22, PSN: wire.PSN(i), PKey: wire.DefaultPKey}}}
		if err := w.WritePacket(id, int64(i), f.AppendTo(nil), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for count, want := range map[uint64]int{0: 3, 2: 2} {
		var out, errOut strings.Builder
		cmd := captureCmd()
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		flags := captureFlags{file: "-", count: count, ladder: true}
		if err := flags.draw(cmd, bytes.NewReader(stream.Bytes())); err != nil || strings.Count(out.String(), "|------->|") != want {
			t.Errorf("count %d: %v\n%s%s", count, err, &out, &errOut)
		}
	}
}
