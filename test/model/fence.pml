/*
 * fence.pml - the fencing protocol of pg_fence, for the model checker spin
 *
 * What is modelled
 *
 *	NP sessions (process P) run NT transactions each, of up to NOPS statements:
 *	acquire, present (check), write a data row, extend or release, hand_over,
 *	SAVEPOINT and ROLLBACK TO.  Each statement is chosen freely; each transaction may
 *	commit or fail after any statement.  An operator (process Operator) calls
 *	raise_mark, break_lease and forget.  At the start session 0 knows token 1 and has
 *	a live lease on every resource.  Not modelled: acquire_many (acquire several
 *	times, with a savepoint), Redis.
 *
 *	Locks.  One heavyweight lock per resource, in three roles:
 *		g  gate      every writer of the row of fence.resource; conflicts with g
 *		x  takeover  a gate holder that has decided to raise the mark; conflicts
 *		             with x and s
 *		s  commit    pre-commit of a transaction that presented a token; never waits
 *	A request that may not wait is also refused when it conflicts with one that is
 *	queued, as in PostgreSQL before 17 (later ones refuse less): xw is the set of
 *	sessions queued for x.  acquire queues for x too, but may give up at any time.
 *
 *	Visibility.  A resource has one committed version and at most one uncommitted
 *	version, which only its owner (uo) sees.  A transaction ends in two steps: first
 *	its version becomes visible, then its locks go.  Every read takes the latest
 *	committed version, or the own one.
 *
 *	The floor.  forget deletes the row of a resource and raises the floor, one for
 *	all resources, to its token and mark.  Where there is no row the floor is the
 *	mark, and a token equal to it is refused too.
 *
 *	Crashes.  An error, a cancel or a crash is possible between statements, in every
 *	wait, and between the passed check and the commit.  That last place is also
 *	PREPARE TRANSACTION: COMMIT or ROLLBACK PREPARED comes at any later time.  A
 *	frozen session is one that is not scheduled.
 *
 *	Clocks.  The process Clock ends a lease at any moment, so nothing depends on
 *	clocks.  It does not end an uncommitted lease: the C code then refuses a commit
 *	with lease => 'postgres', the model lets it through, which is harder for P6.
 *
 *	Deadlocks.  A wait that closes a cycle (over row locks and heavyweight locks)
 *	fails at once; that transaction is the victim.
 *
 * What is asserted
 *
 *	A1  P1  who presented a token does not commit once a higher mark has committed,
 *	        or once break_lease has ended its lease or forget has removed it
 *	A2  P2  tokens of committed writes to a row never fall
 *	A3  P3  issued tokens rise in commit order and are above the mark; the mark
 *	        never falls
 *	A4  P4  no deadlock has a transaction in it that waits in pre-commit (in the
 *	        protocol, pre-commit waits only for locks of sessions that have ended)
 *	A5  P5  when the commit lock is refused, somebody else has decided to raise the
 *	        mark, or has raised it
 *	A6  P6  when a mark is raised, nobody else is between a passed check and the
 *	        commit; when a check passes, nobody else has an uncommitted higher mark.
 *	        With LEASEPG also: a lease that is not live lets a commit through only
 *	        if this transaction itself released it and still has that version
 *	A7      with REPEATABLE READ, no commit of an older holder is missing from the
 *	        snapshot of a writer (only with -DP7RR)
 *	A8  P5  acquire and forget never take a live lease; hand_over only its own
 *
 * Switches: configuration
 *
 *	NP, NT, NOPS	sessions; transactions of each; statements of a transaction
 *	NA		actions of the operator
 *	NR, NW		resources; data rows.  With NR > 1, row w belongs to resource w
 *	MAXTOK		no token above this is given out
 *	SAME		sessions 0 and 1 belong to the same holder
 *	HIDALL		all sessions belong to the same holder
 *	ONLY		check this one assertion of A1 to A8 and no other; 9: none of them
 *	P5LIVE		A5 is checked only while the own lease is live, or with EXTERNAL
 *			while no newer token exists anywhere: a refusal that nothing excuses
 *	A_DLHW		assert: no deadlock through a heavyweight lock
 *	A_DLANY		assert: no deadlock at all
 *	A_HANDOUT	assert: no number is issued twice, aborted acquisitions included
 *	P7RR		transactions are REPEATABLE READ; assert A7
 *
 * Switches: features
 *
 *	EXTERNAL	tokens come from another service, and check may raise the mark;
 *			without it, acquire issues them
 *	EXTREL		extend and release
 *	LEASEPG		every check is with lease => 'postgres'
 *	SAVEPT		one SAVEPOINT and one ROLLBACK TO for each transaction
 *	HANDOVER	hand_over
 *	OPER		the last session is an operator who calls raise_mark
 *	BREAK		... or break_lease
 *	FORGET		... or forget
 *	ACQOWN		acquire has a transaction of its own
 *	LAZY		variant, not what the C code does: check with a higher external
 *			token only remembers it, pre-commit raises the mark
 *
 * Switches: deliberate mistakes, which the assertions must catch
 *
 *	M_NOCHECK	no check at commit
 *	M_TXSNAP	the check at commit reads with the snapshot of the transaction
 *	M_SNAPFIRST	the check at commit takes its snapshot before the commit lock
 *	M_EARLYREL	the commit lock goes before the commit is visible
 *	M_NOSHARE	the check at commit takes no lock
 *	M_WAIT		the check at commit waits for its lock
 *	M_NOREREAD	acquire does not read again after the gate
 *	M_XEARLY	the locks of a takeover go before the commit is visible
 *	M_PREPDROP	PREPARE lets the locks go
 *	M_SPFORGET	ROLLBACK TO forgets what was presented before the savepoint
 *	M_RELKEEP	ROLLBACK TO does not forget a release that it undoes
 *	M_EXTWAIT	extend and release wait for the gate in any transaction
 *	M_TOKONLY	acquire and hand_over issue token + 1, not greatest(token, mark) + 1
 *	M_MOVEUP	moving up does not check that the older token is still the mark
 *	M_HANDNOX	hand_over does without the takeover lock
 *	M_BREAKONLY	break_lease ends the lease and does not raise the mark
 *	M_NOFLOOR	forget does not raise the floor
 *	M_FORGETX	forget takes the takeover lock before it has read under the gate
 *	NO_ENDED_RETRY	pre-commit does not retry when the holder of x has just ended
 *	SELF_SHARE	pre-commit wants the commit lock also where it has the takeover lock
 *	SL		one mode pair instead of gate, takeover and commit: who wants to
 *			raise the mark takes x before it has decided.  Ways to do this:
 *	  ACQ_WAIT	    acquire queues for x (else it gives up at once)
 *	  REFUSED_KEEPS	    a refused acquire keeps x
 *	  M_REFUSED_LOCKS   acquire does not read before it takes x
 *	  EQUAL_KEEPS	    check that found its token equal under x keeps x
 *	  EXT_X		    extend and release take x
 */

/* ---------------- configuration ---------------- */

#ifndef NP
#define NP 3
#endif
#ifndef NT
#define NT 2
#endif
#ifndef NOPS
#define NOPS 3
#endif
#ifndef NA
#define NA 1
#endif
#ifndef NR
#define NR 1
#endif
#ifndef NW
#define NW 1
#endif
#ifndef MAXTOK
#define MAXTOK 4
#endif

/* the holder that session p belongs to */
#ifdef HIDALL
#define HID(p) 0
#elif defined(SAME)
#define HID(p) ((p) < 2 -> 0 : 1)
#else
#define HID(p) (p)
#endif

/* the session that is the operator */
#define OP (NP - 1)

/* the number of holders */
#ifdef HIDALL
#define NH 1
#elif defined(SAME)
#define NH 2
#elif defined(OPER)
#define NH (NP - 1)
#else
#define NH NP
#endif

/* the resource that row w belongs to */
#if NR == 1
#define RES(w) 0
#else
#define RES(w) (w)
#endif

#define WHEN(c, s)	if :: (c) -> s :: else fi

/* sets of sessions are bit masks */
#define B(p)		(1 << (p))
#define OTHERS(p)	(255 - B(p))

/* ---------------- assertions ---------------- */

#ifndef ONLY
#define ONLY 0
#endif
#define CHECK(n, c)	assert((ONLY != 0 && ONLY != n) || (c))
#define A1(c)	CHECK(1, c)
#define A2(c)	CHECK(2, c)
#define A3(c)	CHECK(3, c)
#define A4(c)	CHECK(4, c)
#define A5(c)	CHECK(5, c)
#define A6(c)	CHECK(6, c)
#define A7(c)	CHECK(7, c)
#define A8(c)	CHECK(8, c)

/* ---------------- state ---------------- */

/* Sessions and holders are stored as number + 1; 0 is nobody. */

typedef Resource {
	/* the committed version */
	byte tok;		/* last token issued */
	byte mark;		/* 0: there is no row */
	bit live;		/* the lease is live */
	byte hold;		/* its holder */
	/* the uncommitted version of session uo */
	byte uo;
	byte utok;
	byte umark;
	bit ulive;
	byte uhold;
	/* the lock */
	byte g;			/* who has the gate */
	byte x;			/* who has the takeover lock */
	byte s;			/* set: who has the commit lock */
	byte xw;		/* set: who is queued for x */
	/* for the assertions only */
	byte lastIss;		/* last token committed by an acquire or hand_over */
	byte dec;		/* set: who has decided to raise the mark */
#ifdef FORGET
	byte top;		/* highest mark that ever committed */
#endif
#if defined(BREAK) || defined(FORGET)
	byte off;		/* highest token that break_lease or forget has put out of use */
#endif
#ifdef A_HANDOUT
	byte handed;		/* highest number ever issued */
#endif
#ifdef EXTERNAL
	byte ext;		/* last token of the other service */
#endif
}

typedef Row {
	byte lk;		/* who has the row lock */
	byte tok;		/* token of the last committed write */
}

typedef Transaction {
	byte pres[NR];		/* token presented */
	byte low[NR];		/* lowest token presented and not rolled back; for A1 */
	byte acq[NR];		/* token acquired here, or issued by hand_over */
	byte dt[NW];		/* token under which the row was written here */
	bit wrote;		/* there is something to commit */
	bit comm;		/* the check at commit has passed */
	bit ended;		/* visible or rolled back, but the locks are still there */
	byte wr;		/* waits for the lock of this row (number + 1) */
	byte wx;		/* waits for x of this resource (number + 1) */
	byte wg;		/* waits for the gate of this resource (number + 1) */
	bit pcw;		/* that wait is in pre-commit */
#ifdef LEASEPG
	bit rel[NR];		/* released its own lease here */
#endif
#if defined(M_TXSNAP) || defined(M_SNAPFIRST)
	byte snap[NR];		/* mark in the wrong snapshot */
#endif
#ifdef P7RR
	bit open;		/* has a snapshot */
	byte minc[NR];		/* lowest token that committed data since then */
#endif
#ifdef SAVEPT
	/* as it was at the savepoint: presented, locks held, row locks, own version */
	byte sv;		/* 0 no savepoint yet, 1 there is one, 2 rolled back to it */
	byte spres[NR];
	byte slow[NR];
	byte sacq[NR];
	bit sx[NR];
	bit sg[NR];
	bit sdec[NR];
	bit suo[NR];
	byte sutok[NR];
	byte sumark[NR];
	bit sulive[NR];
	byte suhold[NR];
	byte sdt[NW];
	byte slk[NW];
#ifdef LEASEPG
	bit srel[NR];
#endif
#endif
}

typedef Known {
	byte tok[NR];		/* newest token the clients of a holder know */
}

Resource R[NR];
Row D[NW];
Transaction T[NP];
Known K[NP];			/* by holder */
#ifdef FORGET
byte floor;
#endif

/* scratch of a single step, so not part of the state */
hidden byte ci, cj, cm, cy, zi;
hidden byte dead, hw, pcc;
#ifdef HANDOVER
hidden byte heir;
#endif

/* ---------------- reading ---------------- */

/* without a row, the mark is the floor */
#ifdef FORGET
#define orFloor(m)	((m) -> (m) : floor)
#define found(p, r)	((R[r].uo == p + 1 -> R[r].umark : R[r].mark) != 0)
#define topMark(r)	R[r].top
#else
#define orFloor(m)	(m)
#define found(p, r)	true
#define topMark(r)	R[r].mark
#endif

/* the own version where there is one, else the latest committed one */
#define rdtok(p, r)	(R[r].uo == p + 1 -> R[r].utok : R[r].tok)
#define rdmark(p, r)	orFloor(R[r].uo == p + 1 -> R[r].umark : R[r].mark)
#define rdlive(p, r)	(R[r].uo == p + 1 -> R[r].ulive : R[r].live)
#define rdhold(p, r)	(R[r].uo == p + 1 -> R[r].uhold : R[r].hold)

/* the token is refused */
#define tooOld(p, r, t)	((t) < rdmark(p, r) || ((t) == rdmark(p, r) && !found(p, r)))

/* the token a client presents: the one acquired in this transaction, else the newest it knows */
#define clientTok(p, r)	(T[p].acq[r] -> T[p].acq[r] : K[HID(p)].tok[r])

/* the live lease is that of token t; and nothing has superseded it */
#define leaseOf(p, r, t)	(rdlive(p, r) && rdtok(p, r) == t)
#define leaseOpen(p, r, t)	(leaseOf(p, r, t) && rdmark(p, r) <= t)

/* A5: somebody else has raised the mark, or has decided to */
#define decided(p, r)	(R[r].mark > T[p].pres[r] || (R[r].dec & OTHERS(p)) != 0)
#ifndef P5LIVE
#define excused(p, r)	decided(p, r)
#elif defined(EXTERNAL)
#define excused(p, r)	(decided(p, r) || R[r].ext > T[p].pres[r])
#else
#define excused(p, r)	(decided(p, r) || !leaseOf(p, r, T[p].pres[r]))
#endif

/* ---------------- deadlocks ---------------- */

/* mm = the sessions that session q waits for */
inline blockers(q, mm)
{
	mm = 0;
	if
	:: T[q].wr -> mm = (D[T[q].wr - 1].lk -> B(D[T[q].wr - 1].lk - 1) : 0)
	:: T[q].wx -> mm = R[T[q].wx - 1].s | (R[T[q].wx - 1].x -> B(R[T[q].wx - 1].x - 1) : 0)
	:: T[q].wg -> mm = (R[T[q].wg - 1].g -> B(R[T[q].wg - 1].g - 1) : 0)
	:: else -> skip
	fi;
	mm = mm & OTHERS(q)
}

/* session p has just begun to wait: dead = it waits, in the end, for itself */
inline findCycle(p)
{
	cy = 0; hw = 0; pcc = 0; cm = 0;
	blockers(p, cy);
	/* NP rounds reach everybody */
	for (ci : 0 .. NP - 1) {
		for (cj : 0 .. NP - 1) {
			WHEN((cy & B(cj)), blockers(cj, cm); cy = cy | cm)
		}
	};
	dead = (cy >> p) & 1;
	/* which kinds of wait are in it, or in reach of it (for A4 that is stricter) */
	if
	:: dead ->
		for (cj : 0 .. NP - 1) {
			WHEN((cy & B(cj)) && (T[cj].wx || T[cj].wg), hw = 1);
			WHEN((cy & B(cj)) && T[cj].pcw, pcc = 1)
		}
	:: else
	fi;
	A4(!pcc);
#ifdef A_DLHW
	assert(!(dead && hw));
#endif
#ifdef A_DLANY
	assert(!dead);
#endif
	skip
}

/* ---------------- locks ---------------- */

#define canG(p, r)	(R[r].g == 0 || R[r].g == p + 1)
#define canX(p, r)	((R[r].x == 0 || R[r].x == p + 1) && (R[r].s & OTHERS(p)) == 0)
/* without waiting: nobody may be queued either */
#define tryX(p, r)	(canX(p, r) && R[r].xw == 0)
#define tryS(p, r)	((R[r].x == 0 || R[r].x == p + 1) && R[r].xw == 0)

#define haveG(p, r)	(R[r].g == p + 1)
#define haveX(p, r)	(R[r].x == p + 1)
/* somebody else's takeover lock is still there, but that transaction has ended */
#define endedX(p, r)	(R[r].x != 0 && !haveX(p, r) && R[r].xw == 0 && T[R[r].x - 1].ended)
#define decide(p, r)	R[r].dec = R[r].dec | B(p)
#define undecide(p, r)	R[r].dec = R[r].dec & OTHERS(p)

/* gives a lock back, unless the transaction had it before this statement */
inline dropG(r)
{
	WHEN(!had, R[r].g = 0)
}
inline dropX(r)
{
	WHEN(!had, R[r].x = 0)
}

/* Has just begun to wait.  The victim of a deadlock fails. */
inline beginWait()
{
	d_step { findCycle(me) };
	WHEN(dead, dead = 0; goto abort)
}

/* Waits for the gate.  pc: in pre-commit. */
inline waitG(pc)
{
	atomic {
		if
		:: canG(me, r) -> R[r].g = me + 1
		:: else -> T[me].wg = r + 1; T[me].pcw = pc; beginWait()
		fi
	};
	if
	:: T[me].wg == 0		/* got it at once */
	:: atomic { T[me].wg != 0 && canG(me, r) -> R[r].g = me + 1; T[me].wg = 0; T[me].pcw = 0 }
	:: T[me].wg != 0 -> goto abort
	fi
}

/* The same for the takeover lock; while queued, it stands in the way of commit locks. */
inline queueX(pc)
{
	atomic {
		if
		:: canX(me, r) -> R[r].x = me + 1
		:: else -> R[r].xw = R[r].xw | B(me); T[me].wx = r + 1; T[me].pcw = pc; beginWait()
		fi
	}
}

inline grantX()
{
	R[r].x = me + 1; R[r].xw = R[r].xw & OTHERS(me); T[me].wx = 0; T[me].pcw = 0
}

inline waitX(pc)
{
	queueX(pc);
	if
	:: T[me].wx == 0
	:: atomic { T[me].wx != 0 && canX(me, r) -> grantX() }
	:: T[me].wx != 0 -> goto abort
	fi
}

/* Decided: queues for the takeover lock, gets it, or gives up after a while. */
inline takeOver()
{
	atomic { decide(me, r) };
	queueX(0);
	if
	:: T[me].wx == 0
	:: atomic { T[me].wx != 0 && canX(me, r) -> grantX() }
	:: atomic {
		T[me].wx != 0 ->		/* busy */
		R[r].xw = R[r].xw & OTHERS(me); T[me].wx = 0;
		undecide(me, r);
		dropG(r); goto ops
	   }
	:: T[me].wx != 0 -> goto abort
	fi
}

/* The gate for extend, release and hand_over. */
inline politeG()
{
#ifdef M_EXTWAIT
	waitG(0)
#else
	/* waits only while it has written nothing: then nobody waits for it */
	if
	:: T[me].wrote ->
		atomic {
			if
			:: canG(me, r) -> R[r].g = me + 1
			:: else -> goto ops		/* busy */
			fi
		}
	:: else -> waitG(0)
	fi
#endif
}

inline releaseLocks(p)
{
	for (zi : 0 .. NR - 1) {
		WHEN(haveX(p, zi), R[zi].x = 0);
		WHEN(haveG(p, zi), R[zi].g = 0);
		R[zi].s = R[zi].s & OTHERS(p);
		R[zi].xw = R[zi].xw & OTHERS(p)
	};
	skip
}

inline releaseCommitLocks(p)
{
	for (zi : 0 .. NR - 1) {
		R[zi].s = R[zi].s & OTHERS(p)
	};
	skip
}

/* ---------------- versions ---------------- */

/* the own version of the row, at first a copy of the committed one */
inline newVersion(p, r)
{
	assert(R[r].uo == 0 || R[r].uo == p + 1);	/* the gate keeps other writers out */
	if
	:: R[r].uo == 0 ->
		R[r].uo = p + 1;
		R[r].utok = R[r].tok; R[r].umark = orFloor(R[r].mark);
		R[r].ulive = R[r].live; R[r].uhold = R[r].hold
	:: else
	fi
}

inline dropVersion(r)
{
	R[r].uo = 0;
	R[r].utok = 0; R[r].umark = 0;
	R[r].ulive = 0; R[r].uhold = 0
}

/* a transaction that fails: everything but its locks goes */
inline dropAll(p)
{
	for (zi : 0 .. NR - 1) {
		WHEN(R[zi].uo == p + 1, dropVersion(zi));
		R[zi].xw = R[zi].xw & OTHERS(p);
		undecide(p, zi)
	};
	clearTransaction(p);
	T[p].ended = 1
}

/* P6: nobody else is between a passed check and the commit */
inline noCommitter(p, r)
{
	for (zi : 0 .. NP - 1) {
		A6(!(zi != p && T[zi].comm && T[zi].pres[r] && !T[zi].ended))
	};
	skip
}

/* ---------------- what a transaction knows ---------------- */

#define setPresented(p, r, tt) \
	T[p].pres[r] = tt; \
	T[p].low[r] = ((T[p].low[r] == 0 || tt < T[p].low[r]) -> tt : T[p].low[r])

/* a new token and lease for holder h */
inline grant(p, r, h)
{
	noCommitter(p, r);
	newVersion(p, r);
#ifdef M_TOKONLY
	R[r].utok = R[r].utok + 1;
#else
	R[r].utok = (R[r].utok > R[r].umark -> R[r].utok : R[r].umark) + 1;
#endif
	R[r].umark = R[r].utok;
	R[r].ulive = 1;
	R[r].uhold = h + 1;
	T[p].acq[r] = R[r].utok;
	T[p].wrote = 1;
#ifdef LEASEPG
	T[p].rel[r] = 0;		/* a new lease */
#endif
#ifdef A_HANDOUT
	assert(R[r].utok > R[r].handed);
	R[r].handed = R[r].utok;
#endif
}

/* forgets everything and lets the row locks go */
inline clearTransaction(p)
{
	for (zi : 0 .. NR - 1) {
		T[p].pres[zi] = 0; T[p].low[zi] = 0; T[p].acq[zi] = 0;
#ifdef LEASEPG
		T[p].rel[zi] = 0;
#endif
#if defined(M_TXSNAP) || defined(M_SNAPFIRST)
		T[p].snap[zi] = 0;
#endif
#ifdef P7RR
		T[p].minc[zi] = 0;
#endif
#ifdef SAVEPT
		clearSaved(p, zi);
#endif
	};
	for (zi : 0 .. NW - 1) {
		WHEN(D[zi].lk == p + 1, D[zi].lk = 0);
		T[p].dt[zi] = 0;
#ifdef SAVEPT
		T[p].sdt[zi] = 0; T[p].slk[zi] = 0;
#endif
	};
	T[p].wrote = 0; T[p].comm = 0;
	T[p].wr = 0; T[p].wx = 0; T[p].wg = 0; T[p].pcw = 0;
#ifdef P7RR
	T[p].open = 0;
#endif
#ifdef SAVEPT
	T[p].sv = 0;
#endif
}

#if defined(M_TXSNAP) || defined(M_SNAPFIRST)
inline takeSnapshot(p)
{
	for (zi : 0 .. NR - 1) {
		T[p].snap[zi] = rdmark(p, zi)
	};
	skip
}
#endif

#ifdef SAVEPT
inline clearSaved(p, r)
{
	T[p].spres[r] = 0; T[p].slow[r] = 0; T[p].sacq[r] = 0;
	T[p].sx[r] = 0; T[p].sg[r] = 0; T[p].sdec[r] = 0;
	T[p].suo[r] = 0;
	T[p].sutok[r] = 0; T[p].sumark[r] = 0;
	T[p].sulive[r] = 0; T[p].suhold[r] = 0;
#ifdef LEASEPG
	T[p].srel[r] = 0
#endif
}

/* SAVEPOINT */
inline saveTransaction(p)
{
	T[p].sv = 1;
	for (zi : 0 .. NR - 1) {
		T[p].spres[zi] = T[p].pres[zi];
		T[p].slow[zi] = T[p].low[zi];
		T[p].sacq[zi] = T[p].acq[zi];
#ifdef LEASEPG
		T[p].srel[zi] = T[p].rel[zi];
#endif
		T[p].sx[zi] = haveX(p, zi);
		T[p].sg[zi] = haveG(p, zi);
		T[p].sdec[zi] = ((R[zi].dec & B(p)) != 0);
		if
		:: R[zi].uo == p + 1 ->
			T[p].suo[zi] = 1;
			T[p].sutok[zi] = R[zi].utok; T[p].sumark[zi] = R[zi].umark;
			T[p].sulive[zi] = R[zi].ulive; T[p].suhold[zi] = R[zi].uhold
		:: else
		fi
	};
	for (zi : 0 .. NW - 1) {
		T[p].sdt[zi] = T[p].dt[zi];
		T[p].slk[zi] = (D[zi].lk == p + 1)
	};
	skip
}

/* ROLLBACK TO: locks taken since the savepoint go, and so do the versions */
inline restoreTransaction(p)
{
	T[p].sv = 2;
	for (zi : 0 .. NR - 1) {
#ifdef M_SPFORGET
		T[p].pres[zi] = 0;
#else
		T[p].pres[zi] = T[p].spres[zi];
#endif
		T[p].low[zi] = T[p].slow[zi];
		T[p].acq[zi] = T[p].sacq[zi];
#if defined(LEASEPG) && !defined(M_RELKEEP)
		T[p].rel[zi] = T[p].srel[zi];
#endif
		WHEN(haveX(p, zi) && !T[p].sx[zi], R[zi].x = 0);
		WHEN(haveG(p, zi) && !T[p].sg[zi], R[zi].g = 0);
		WHEN(!T[p].sdec[zi], undecide(p, zi));
		if
		:: R[zi].uo == p + 1 && T[p].suo[zi] ->
			R[zi].utok = T[p].sutok[zi]; R[zi].umark = T[p].sumark[zi];
			R[zi].ulive = T[p].sulive[zi]; R[zi].uhold = T[p].suhold[zi]
		:: R[zi].uo == p + 1 && !T[p].suo[zi] -> dropVersion(zi)
		:: else
		fi;
		clearSaved(p, zi)
	};
	for (zi : 0 .. NW - 1) {
		T[p].dt[zi] = T[p].sdt[zi];
		WHEN(D[zi].lk == p + 1 && !T[p].slk[zi], D[zi].lk = 0);
		T[p].sdt[zi] = 0; T[p].slk[zi] = 0
	};
	skip
}
#endif

/* ---------------- becoming visible ---------------- */

inline publishResource(p, r)
{
	A1(!(T[p].wrote && T[p].low[r] != 0 && T[p].low[r] < topMark(r)));
#if defined(BREAK) || defined(FORGET)
	A1(!(T[p].wrote && T[p].pres[r] != 0 && T[p].pres[r] <= R[r].off));
#endif
#ifdef P7RR
	A7(!(T[p].dt[r] != 0 && T[p].minc[r] != 0 && T[p].minc[r] < T[p].pres[r]));
#endif
	if
	:: R[r].uo == p + 1 ->
		A3(R[r].umark >= topMark(r) || R[r].umark == 0);
		if
		:: T[p].acq[r] != 0 ->
			A3(R[r].utok > R[r].lastIss && R[r].utok > topMark(r) && T[p].acq[r] > topMark(r));
			R[r].lastIss = R[r].utok;
			K[R[r].uhold - 1].tok[r] = R[r].utok	/* hand_over: now the other one learns it */
		:: else
		fi;
#ifdef FORGET
		R[r].top = (R[r].umark > R[r].top -> R[r].umark : R[r].top);
#endif
		R[r].tok = R[r].utok; R[r].mark = R[r].umark;
		R[r].live = R[r].ulive; R[r].hold = R[r].uhold;
		dropVersion(r)
	:: else
	fi;
	undecide(p, r)
}

inline publishRow(p, w)
{
	if
	:: T[p].dt[w] != 0 ->
		A2(T[p].dt[w] >= D[w].tok);
		D[w].tok = T[p].dt[w];
#ifdef P7RR
		/* whoever has a snapshot by now does not see this commit */
		for (cj : 0 .. NP - 1) {
			if
			:: cj != p && T[cj].open &&
			   (T[cj].minc[RES(w)] == 0 || T[p].dt[w] < T[cj].minc[RES(w)]) ->
				T[cj].minc[RES(w)] = T[p].dt[w]
			:: else
			fi
		};
#endif
	:: else
	fi
}

/* ---------------- a session ---------------- */

/*
 * How spin reads this.  "goto" from one atomic sequence into another keeps
 * atomicity: where a statement begins with one, its choice and its first step are
 * one step.  A d_step can neither be the target of a jump nor end with a loop; that
 * is why there is a "skip" in such places.  A line that ends with an expression
 * ends the statement.
 */

#define resetLocals	r = 0; w = 0; t = 0; m = 0; had = 0

/* with several rows of one resource, choose statements about the resource once only */
#define forResource	(w == 0 || NR > 1)

#ifdef ACQOWN
#define mayAcquire(nop)	(nop == 1)
#else
#define mayAcquire(nop)	true
#endif

proctype P(byte me)
{
	byte nt, nop;		/* transactions begun; statements of this one */
	byte r, w, t, m;	/* resource, row, token and mark of this statement */
	bit had;		/* the lock was there before this statement */

ops:
	if
	:: atomic {
		nop < NOPS && (nop > 0 || nt < NT) ->
		if
		:: nop == 0 ->
			nt++;
#ifdef P7RR
			T[me].open = 1;		/* REPEATABLE READ: snapshot of the first statement */
#endif
#ifdef M_TXSNAP
			d_step { takeSnapshot(me) };
#endif
			skip
		:: else
		fi;
		nop++;
		resetLocals;
#if NR > 1
		if
		:: r = 0
		:: r = 1
		fi;
#endif
#if NR > 1 && NW > 1
		w = r;
#elif NW > 1
		if
		:: w = 0
		:: w = 1
		fi;
#endif
		if
#ifdef EXTERNAL
		:: forResource &&
		   (T[me].pres[r] == 0 || K[HID(me)].tok[r] > T[me].pres[r] || R[r].ext < MAXTOK) ->
			goto present
#else
#ifdef M_REFUSED_LOCKS
		:: forResource -> goto acquire
#else
		/* read without a lock: a live lease refuses already here */
		:: forResource && mayAcquire(nop) && !rdlive(me, r) && rdmark(me, r) < MAXTOK -> goto acquire
#endif
		:: forResource && clientTok(me, r) != T[me].pres[r] -> goto present
#endif
		:: T[me].pres[RES(w)] != 0 && T[me].dt[w] != T[me].pres[RES(w)] -> goto writeRow
#ifdef EXTREL
		:: forResource && leaseOpen(me, r, K[HID(me)].tok[r]) -> goto extend
#endif
#ifdef HANDOVER
		:: forResource && leaseOpen(me, r, K[HID(me)].tok[r]) && rdmark(me, r) < MAXTOK && NH > 1 ->
			goto handOver
#endif
#ifdef SAVEPT
		:: w == 0 && r == 0 && T[me].sv == 0 && nop > 1 -> goto savepoint
		:: w == 0 && r == 0 && T[me].sv == 1 -> goto rollbackTo
#endif
		:: else -> goto abort
		fi
	   }
	:: atomic { nop > 0 -> goto precommit }
	:: atomic { nop > 0 -> goto abort }
	:: atomic { nop == 0 && nt >= NT -> goto fin }
	fi;

	/* ---------------- acquire ---------------- */

	/*
	 * It also presents the new token, which the real one leaves to check: the
	 * same as a check that always follows.
	 */
acquire:
#ifndef SL
	had = haveG(me, r);		/* a step of its own: others run between the first read and the gate */
	atomic {
		if
		:: canG(me, r) -> R[r].g = me + 1
		:: else -> goto ops		/* busy */
		fi
	};
#ifndef M_NOREREAD
	atomic {
		WHEN(rdlive(me, r) || rdmark(me, r) >= MAXTOK, dropG(r); goto ops)	/* held */
	};
#endif
	takeOver();
#else
	had = haveX(me, r);
#ifdef ACQ_WAIT
	waitX(0);
#else
	atomic {
		if
		:: tryX(me, r) -> R[r].x = me + 1
		:: else -> goto ops		/* busy */
		fi
	};
#endif
	atomic {
		if
		:: rdlive(me, r) || rdmark(me, r) >= MAXTOK ->		/* held */
#ifndef REFUSED_KEEPS
			dropX(r);
#endif
			goto ops
		:: else -> decide(me, r)
		fi
	};
#endif
	atomic {
#ifndef M_MOVEUP
		/* moving up: the older token must still be the mark */
		WHEN(T[me].pres[r] != 0 && T[me].pres[r] < rdmark(me, r), goto abort);	/* PF001 */
#endif
		d_step {
			A8(!rdlive(me, r));
			grant(me, r, HID(me));
			setPresented(me, r, R[r].utok)
		}
	};
#ifdef ACQOWN
	goto precommit;
#else
	goto ops;
#endif

	/* ---------------- present (check) ---------------- */

present:
	atomic {
#ifdef EXTERNAL
		if
		:: K[HID(me)].tok[r] != 0 -> t = K[HID(me)].tok[r]
		:: R[r].ext < MAXTOK ->		/* a new one from the other service */
			R[r].ext++;
			K[HID(me)].tok[r] = R[r].ext;
			t = R[r].ext
		:: else -> goto ops
		fi;
#else
		t = clientTok(me, r);
#endif
		m = rdmark(me, r);
		if
		:: t == 0 || t == T[me].pres[r] -> goto ops
		:: t != 0 && (tooOld(me, r, t) || t < T[me].pres[r]) -> goto abort		/* PF001 */
		:: t == m && found(me, r) && t > T[me].pres[r] ->
#ifndef M_MOVEUP
			/* somebody else raised the mark: the work done under the older token is stale */
			WHEN(T[me].pres[r] != 0, goto abort);		/* PF001 */
#endif
#ifdef LEASEPG
			WHEN(!leaseOf(me, r, t), goto abort);	/* PF005 */
#endif
			setPresented(me, r, t);
			goto ops
		:: else ->		/* higher than the mark */
#ifndef EXTERNAL
			goto abort		/* PF004 */
#endif
		fi
	};
#if defined(EXTERNAL) && defined(LAZY)
	atomic {
		WHEN(T[me].pres[r] != 0 && rdmark(me, r) > T[me].pres[r], goto abort);	/* PF001 */
		setPresented(me, r, t);
		T[me].wrote = 1
	};
	goto ops;
#elif defined(EXTERNAL)
#ifndef SL
	had = haveG(me, r);
	waitG(0);
	atomic {
		m = rdmark(me, r);
		if
		:: tooOld(me, r, t) -> goto abort		/* PF001 */
		:: t == m && found(me, r) ->		/* equal by now: another session of this holder was first */
			dropG(r);
#ifndef M_MOVEUP
			WHEN(T[me].pres[r] != 0, goto abort);	/* PF001 */
#endif
			setPresented(me, r, t);
			goto ops
		:: else -> decide(me, r)
		fi
	};
	waitX(0);
#else
	had = haveX(me, r);
	waitX(0);
	atomic {
		m = rdmark(me, r);
		if
		:: t < m -> goto abort		/* PF001 */
		:: t == m ->
#ifndef EQUAL_KEEPS
			dropX(r);
#endif
#ifndef M_MOVEUP
			WHEN(T[me].pres[r] != 0, goto abort);	/* PF001 */
#endif
			setPresented(me, r, t);
			goto ops
		:: else -> decide(me, r)
		fi
	};
#endif
	atomic {
#ifndef M_MOVEUP
		/* moving up: the older token must still be the mark */
		WHEN(T[me].pres[r] != 0 && T[me].pres[r] < rdmark(me, r), goto abort);	/* PF001 */
#endif
		d_step {
			noCommitter(me, r);
			newVersion(me, r);
			R[r].umark = t;
			setPresented(me, r, t);
			T[me].wrote = 1
		}
	};
	goto ops;
#endif

	/* ---------------- write a data row ---------------- */

writeRow:
	atomic {
		if
		:: D[w].lk == 0 || D[w].lk == me + 1 ->
			D[w].lk = me + 1;
			T[me].dt[w] = T[me].pres[RES(w)];
			T[me].wrote = 1;
			goto ops
		:: else -> T[me].wr = w + 1; beginWait()
		fi
	};
	if
	:: atomic {
		D[w].lk == 0 ->
		D[w].lk = me + 1;
		T[me].wr = 0;
		T[me].dt[w] = T[me].pres[RES(w)];
		T[me].wrote = 1
	   }
	:: goto abort
	fi;
	goto ops;

#ifdef EXTREL
	/* ---------------- extend, release ---------------- */

extend:
	t = K[HID(me)].tok[r];
#ifndef EXT_X
	had = haveG(me, r);
	politeG();
#else
	had = haveX(me, r);
	atomic {
		if
		:: tryX(me, r) -> R[r].x = me + 1
		:: else -> goto ops
		fi
	};
#endif
	atomic {
		if
		:: !leaseOpen(me, r, t) ->	/* expired, or superseded */
#ifndef EXT_X
			dropG(r);
#else
			dropX(r);
#endif
			goto ops
		:: else
		fi;
		d_step {
			newVersion(me, r);
			T[me].wrote = 1
		};
		if
		:: R[r].ulive = 1		/* extend */
		:: R[r].ulive = 0;		/* release */
#ifdef LEASEPG
			T[me].rel[r] = 1
#endif
		fi
	};
	goto ops;
#endif

#ifdef HANDOVER
	/* ---------------- hand_over ---------------- */

handOver:
	t = K[HID(me)].tok[r];
	had = haveG(me, r);
	politeG();
	atomic {
		WHEN(!leaseOpen(me, r, t), dropG(r); goto ops)		/* expired, or superseded */
	};
#ifndef M_HANDNOX
	takeOver();
#endif
	atomic {
#ifndef M_MOVEUP
		/* moving up: the older token must still be the mark */
		WHEN(T[me].pres[r] != 0 && T[me].pres[r] < rdmark(me, r), goto abort);	/* PF001 */
#endif
		/* to any other holder */
		if
		:: HID(me) != 0 -> heir = 0
		:: HID(me) != 1 -> heir = 1
#if NH > 2
		:: HID(me) != 2 -> heir = 2
#endif
		fi;
		d_step {
			A8(rdtok(me, r) == t);
			grant(me, r, heir);
			/* who stands on the old token stands on the new one from now on */
			WHEN(T[me].pres[r] != 0, setPresented(me, r, R[r].utok));
			heir = 0
		}
	};
	goto ops;
#endif

#ifdef SAVEPT
	/* ---------------- savepoint ---------------- */

savepoint:
	atomic { skip; d_step { saveTransaction(me) } };
	goto ops;

rollbackTo:
	atomic { skip; d_step { restoreTransaction(me) } };
	goto ops;
#endif

	/* ---------------- pre-commit, also before PREPARE ---------------- */

precommit:
	atomic { skip; d_step { resetLocals } };
	WHEN(!T[me].wrote, goto visible);
#ifdef M_SNAPFIRST
	atomic { skip; d_step { takeSnapshot(me) } };
#endif
#ifdef M_NOCHECK
	goto visible;
#endif

nextResource:
	if
	:: r == NR -> goto passed
	:: r < NR && T[me].pres[r] == 0 -> r++; goto nextResource
	:: r < NR && T[me].pres[r] != 0
	fi;

#ifdef LAZY
	/* raise the mark first, as check does elsewhere */
	if
	:: atomic { T[me].pres[r] <= rdmark(me, r) -> goto commitLock }
	:: T[me].pres[r] > rdmark(me, r)
	fi;
	waitG(1);
	atomic {
		if
		:: R[r].mark > T[me].low[r] -> goto abort	/* PF001 */
		:: R[r].mark <= T[me].low[r] && R[r].mark == T[me].pres[r] -> R[r].g = 0; goto commitLock
		:: else -> decide(me, r)
		fi
	};
	waitX(1);
	atomic {
		skip;
		d_step {
			noCommitter(me, r);
			newVersion(me, r);
			R[r].umark = T[me].pres[r]
		}
	};
	goto judge;
#endif

#ifndef M_NOSHARE
commitLock:
#ifndef M_WAIT
	atomic {
		if
#ifndef SELF_SHARE
		:: haveX(me, r)			/* the stronger lock is enough */
		:: !haveX(me, r) && tryS(me, r) -> R[r].s = R[r].s | B(me)
#else
		:: tryS(me, r) -> R[r].s = R[r].s | B(me)
#endif
		:: else ->
#ifndef NO_ENDED_RETRY
			/* try again */
			WHEN(endedX(me, r), !endedX(me, r); goto commitLock);
#endif
			A5(excused(me, r));
			goto abort		/* PF001 */
		fi
	};
#else
	atomic {
		if
		:: tryS(me, r) -> R[r].s = R[r].s | B(me); goto judge
		:: else -> T[me].wx = r + 1; T[me].pcw = 1; beginWait()
		fi
	};
	if
	:: atomic { tryS(me, r) -> R[r].s = R[r].s | B(me); T[me].wx = 0; T[me].pcw = 0 }
	:: goto abort
	fi;
#endif
#endif

judge:		/* read again, after the lock */
	atomic {
#if defined(M_TXSNAP)
		m = (R[r].uo == me + 1 -> R[r].umark : T[me].snap[r]);
#elif defined(M_SNAPFIRST)
		m = T[me].snap[r];
#else
		m = rdmark(me, r);
#endif
		WHEN(m > T[me].pres[r] || !found(me, r), goto abort);	/* PF001 */
#ifdef LAZY
		WHEN(R[r].mark > T[me].low[r], goto abort);	/* PF001 */
#endif
#ifdef LEASEPG
		/* the lease is live, or this transaction itself released it: its gate keeps takers out */
		WHEN(rdtok(me, r) != T[me].pres[r] || !(rdlive(me, r) || T[me].rel[r]), goto abort);	/* PF005 */
		A6(rdlive(me, r) || R[r].uo == me + 1);
#endif
		m = 0;
		A6(!(R[r].uo != 0 && R[r].uo != me + 1 && R[r].umark > T[me].pres[r]));
		r++
	};
	goto nextResource;

passed:
	atomic { skip; d_step { r = 0; T[me].comm = 1 } };
#ifdef M_EARLYREL
	atomic { skip; d_step { releaseCommitLocks(me) } };
#endif
#ifdef M_PREPDROP
	if
	:: skip
	:: d_step { releaseLocks(me) }
	fi;
#endif
	/* a commit on its way, or prepared; it may still come to nothing */
	if
	:: goto visible
	:: goto abort
	fi;

	/* ---------------- the end ---------------- */

visible:
#ifdef M_XEARLY
	atomic { skip; d_step { releaseLocks(me) } };
#endif
	atomic {
		skip;
		d_step {
			for (zi : 0 .. NR - 1) {
				publishResource(me, zi)
			};
			for (zi : 0 .. NW - 1) {
				publishRow(me, zi)
			};
			clearTransaction(me);
			T[me].ended = 1
		}
	};
	goto unlock;

abort:
	atomic {
		skip;
		d_step {
			resetLocals;
			dropAll(me)
		}
	};

unlock:
	atomic { skip; d_step { releaseLocks(me); T[me].ended = 0; nop = 0; resetLocals } };
	goto ops;

fin:
	skip
}

/* a lease may run out at any time */
active proctype Clock()
{
end:
	do
	:: atomic { R[0].live -> R[0].live = 0 }
#if NR > 1
	:: atomic { R[1].live -> R[1].live = 0 }
#endif
	od
}

#ifdef OPER
/* the operator: NA actions, each in a transaction of its own, which commits or fails */
proctype Operator(byte me)
{
	byte na;		/* actions begun */
	byte r;
	bit brk;		/* it is break_lease */

next:
	if
	:: atomic {
		na < NA ->
		na++;
#if NR > 1
		if
		:: r = 0
		:: r = 1
		fi;
#endif
		if
		:: goto raise
#ifdef BREAK
		:: rdhold(me, r) != 0 -> brk = 1; goto raise
#endif
#ifdef FORGET
		/* looks for old rows without a lock */
		:: found(me, r) && !rdlive(me, r) -> goto forget
#endif
		fi
	   }
	:: atomic { na == NA -> goto fin }
	fi;

	/* ---------------- raise_mark, break_lease ---------------- */

raise:
	waitG(0);
	atomic { decide(me, r) };
	waitX(0);
	atomic {
		skip;
		d_step {
			noCommitter(me, r);
			newVersion(me, r);
#ifdef M_BREAKONLY
			WHEN(!brk, R[r].umark = R[r].umark + 1);
#else
			R[r].umark = R[r].umark + 1;
#endif
			WHEN(brk, R[r].ulive = 0)
		}
	};
	goto visible;

#ifdef FORGET
	/* ---------------- forget ---------------- */

	/* waits for nobody: whoever has a lock is using the resource */
forget:
	atomic {
		if
		:: canG(me, r) -> R[r].g = me + 1
		:: else -> goto skipped
		fi
	};
#ifdef M_FORGETX
	atomic {
		if
		:: tryX(me, r) -> R[r].x = me + 1
		:: else -> goto skipped
		fi
	};
	atomic {
		WHEN(rdlive(me, r), goto skipped);
		decide(me, r)
	};
#else
	atomic {
		WHEN(rdlive(me, r), goto skipped);
		decide(me, r)
	};
	atomic {
		if
		:: tryX(me, r) -> R[r].x = me + 1
		:: else -> goto skipped
		fi
	};
#endif
	atomic {
		skip;
		d_step {
			noCommitter(me, r);
			A8(!rdlive(me, r));
			newVersion(me, r);
			R[r].utok = 0; R[r].umark = 0;
			R[r].ulive = 0; R[r].uhold = 0
		}
	};
	goto visible;

skipped:
	atomic { skip; d_step { undecide(me, r); releaseLocks(me); r = 0 } };
	goto next;
#endif

	/* ---------------- the end ---------------- */

visible:
	if
	:: atomic {
		skip;
		d_step {
#if defined(BREAK) || defined(FORGET)
			WHEN(brk || R[r].umark == 0, R[r].off = (R[r].tok > R[r].mark -> R[r].tok : R[r].mark));
#endif
#if defined(FORGET) && !defined(M_NOFLOOR)
			WHEN(R[r].umark == 0 && R[r].off > floor, floor = R[r].off);
#endif
			publishResource(me, r);
			T[me].ended = 1
		}
	   }
	:: goto abort
	fi;
	goto unlock;

abort:
	atomic { skip; d_step { dropAll(me) } };

unlock:
	atomic { skip; d_step { releaseLocks(me); T[me].ended = 0; r = 0; brk = 0 } };
	goto next;

fin:
	skip
}
#endif

/* session 0 has token 1 and a live lease */
inline grantFirst(r)
{
	R[r].tok = 1;
	R[r].mark = 1;
	R[r].live = 1;
	R[r].hold = HID(0) + 1;
	R[r].lastIss = 1;
#ifdef FORGET
	R[r].top = 1;
#endif
#ifdef EXTERNAL
	R[r].ext = 1;
#endif
	K[HID(0)].tok[r] = 1
}

init {
	atomic {
		grantFirst(0);
#if NR > 1
		grantFirst(1);
#endif
		run P(0);
#if NP > 2 || (NP > 1 && !defined(OPER))
		run P(1);
#endif
#if NP > 2 && !defined(OPER)
		run P(2);
#endif
#ifdef OPER
		run Operator(OP);
#endif
		skip
	}
}
