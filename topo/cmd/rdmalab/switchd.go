package main

import (
	"log"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/swordbox/switchd"
)

// switchdCmd runs the switch's daemon; up starts it in the switch's namespaces.
func switchdCmd() *cobra.Command {
	var dir string
	cmd := hiddenCmd("switchd", "Daemon of the switch (started by up)", func(cmd *cobra.Command, _ []string) error {
		unix.Umask(umask)
		return switchd.Main(cmd.Context(), dir, log.New(cmd.ErrOrStderr(), "", log.LstdFlags|log.Lmicroseconds))
	})
	cmd.Flags().StringVar(&dir, "rack-dir", "", "state folder of the rack")
	must(cmd.MarkFlagRequired("rack-dir"))
	return cmd
}
