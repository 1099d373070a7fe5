package cli

import (
	"strings"
	"testing"
)

// A word of other tools is answered by the command that does what it means, which exists, and not by one that is
// only spelled alike.
func TestWordsOfOtherToolsAreAnsweredByMeaning(t *testing.T) {
	want := map[string]string{
		"status": "ls ps list show inspect describe info", "up": "deploy start create boot", "down": "destroy stop delete rm remove clean",
		"crash": "kill", "hang": "pause", "exec": "ssh attach enter shell cp", "capture": "tcpdump sniff pcap tshark wireshark",
		"counters": "stats stat", "logs": "log journal", "graph": "plot topology topo draw diagram", "top": "monitor htop",
		"apply": "update diff", "heal": "clear reset", "inject": "netem tc", "perf": "iperf ib_write_bw", "restart": "reboot",
	}
	for command, words := range want {
		for word := range strings.FieldsSeq(words) {
			_, err := run(t, word)
			if err == nil {
				t.Errorf("%s is a command", word)
				continue
			}
			text := plain(rootCmd(commands()...), err.Error())
			if _, meant, _ := strings.Cut(text, "; did you mean rdmalab "); meant != command+"?" && !strings.HasPrefix(meant, command+" ") {
				t.Errorf("%s: %s, want rdmalab %s", word, text, command)
			}
		}
	}
	root := rootCmd(commands()...)
	for word, meant := range meantCommands {
		if cmd, _, err := root.Find(strings.Fields(meant)[:1]); err != nil || cmd == root {
			t.Errorf("%s is answered by %s, which is no command: %v", word, meant, err)
		}
	}
}
