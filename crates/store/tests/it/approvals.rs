//! An approval is decided once and used once; standing approvals hold until they are revoked.

use contract::ids::ApprovalId;
use contract::limits::MAX_STANDING_RULES;
use contract::scope::Scope;
use serde_json::json;
use sqlx::{Connection, Executor};
use store::{
    ApprovalRequest, ApprovalScope, ApprovalState, Change, CommitError, Decision, DecisionError, Durability,
    RuleSubject, RunState,
};

use crate::world::{NOW, Place, approval_request, everywhere};

fn approve(reach: ApprovalScope) -> Decision {
    Decision::Approve { edited_input: None, reach }
}

fn requesting_approval(place: &Place, number: u32) -> Change {
    Change { approvals: vec![approval_request(place, number)], ..Change::default() }
}

#[tokio::test]
async fn a_decision_counts_once() {
    for place in everywhere().await {
        place.run(1, requesting_approval(&place, 1)).await;
        let id = approval_request(&place, 1).approval_id;
        let decision = Decision::Approve { edited_input: Some(json!({"n": 2})), reach: ApprovalScope::Once };
        let approval = place.store.decide(&id, &decision, "ada", NOW + 1).await.unwrap().approval;
        assert_eq!((approval.state, approval.decided_by.as_deref()), (ApprovalState::Approved, Some("ada")));
        assert_eq!((approval.input, approval.edited_input), (json!({"n": 1}), Some(json!({"n": 2}))));
        for again in [approve(ApprovalScope::Once), Decision::Deny { note: "no".to_owned() }] {
            let refused = place.store.decide(&id, &again, "bob", NOW + 2).await;
            assert!(matches!(refused, Err(DecisionError::NotPending)), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn racing_decisions_count_once() {
    for place in everywhere().await {
        place.run(1, requesting_approval(&place, 1)).await;
        let racers = (0..12).map(|number| {
            let (store, id) = (place.store.clone(), approval_request(&place, 1).approval_id);
            let decision =
                if number % 2 == 0 { approve(ApprovalScope::Agent) } else { Decision::Deny { note: String::new() } };
            tokio::spawn(async move { store.decide(&id, &decision, "ada", NOW).await.is_ok() })
        });
        let mut decided = 0;
        for racer in racers.collect::<Vec<_>>() {
            decided += usize::from(racer.await.unwrap());
        }
        assert_eq!(decided, 1);
    }
}

#[tokio::test]
async fn an_approval_can_be_used_once_and_a_denial_never() {
    for place in everywhere().await {
        let mut held = place.run(1, requesting_approval(&place, 1)).await;
        let used = || Change { used_approvals: vec![approval_request(&place, 1).approval_id], ..Change::default() };
        let refused = place.store.commit(&mut held.clone(), &used(), Durability::Synced, NOW).await;
        assert!(matches!(refused, Err(CommitError::ApprovalGone)), "it is not decided yet: {refused:?}");
        place
            .store
            .decide(&approval_request(&place, 1).approval_id, &approve(ApprovalScope::Once), "ada", NOW)
            .await
            .unwrap();
        place.store.commit(&mut held, &used(), Durability::Synced, NOW).await.unwrap();
        let again = place.store.commit(&mut held.clone(), &used(), Durability::Synced, NOW).await;
        assert!(matches!(again, Err(CommitError::ApprovalGone)), "{again:?}");
        let mut denied = place.run(2, requesting_approval(&place, 2)).await;
        let id = approval_request(&place, 2).approval_id;
        place.store.decide(&id, &Decision::Deny { note: "no".to_owned() }, "ada", NOW).await.unwrap();
        let change = Change { used_approvals: vec![id], ..Change::default() };
        assert!(place.store.commit(&mut denied, &change, Durability::Synced, NOW).await.is_err());
    }
}

#[tokio::test]
async fn an_approval_cannot_be_decided_after_it_expired_or_its_run_ended() {
    for place in everywhere().await {
        place.run(1, requesting_approval(&place, 1)).await;
        let late = place
            .store
            .decide(&approval_request(&place, 1).approval_id, &approve(ApprovalScope::Once), "ada", NOW + 5000)
            .await;
        assert!(matches!(late, Err(DecisionError::NotPending)), "{late:?}");
        let mut held = place.run(2, requesting_approval(&place, 2)).await;
        let end = Change { state: Some(RunState::Aborted), ..Change::default() };
        place.store.commit(&mut held, &end, Durability::Synced, NOW).await.unwrap();
        let over = place
            .store
            .decide(&approval_request(&place, 2).approval_id, &approve(ApprovalScope::Once), "ada", NOW)
            .await;
        assert!(matches!(over, Err(DecisionError::NotPending)), "{over:?}");
        assert_eq!(place.store.approvals_of_run(&held.run_id).await.unwrap()[0].state, ApprovalState::Void);
        let pending = place.store.pending_approvals().await.unwrap();
        assert!(pending.iter().all(|one| one.run_id != held.run_id), "{pending:?}");
        // The approval itself has not expired, and no process has expired the run yet.
        let (state, expires_at) = (Some(RunState::Waiting), Some(NOW + 10));
        place.run(3, Change { state, expires_at, release: true, ..requesting_approval(&place, 3) }).await;
        let id = approval_request(&place, 3).approval_id;
        let expired = place.store.decide(&id, &approve(ApprovalScope::Once), "ada", NOW + 10).await;
        assert!(matches!(expired, Err(DecisionError::NotPending)), "{expired:?}");
        place.store.decide(&id, &approve(ApprovalScope::Once), "ada", NOW + 9).await.unwrap();
    }
}

#[tokio::test]
async fn a_rule_allows_only_its_tool_agent_and_session_until_it_is_revoked() {
    for place in everywhere().await {
        let scope = place.scope();
        let tool = approval_request(&place, 0).tool_id;
        let allowed_at = async |identity: &str, hash: &str, agent: &str, session: &str| {
            let subject = RuleSubject { tool_id: &tool, tool_hash: hash, source_identity: identity };
            place.store.has_standing_approval(subject, agent, session).await.unwrap()
        };
        let allowed = async |hash: &str, agent: &str, session: &str| allowed_at("server", hash, agent, session).await;
        assert!(!allowed("tool", &scope.agent_id, &scope.session_id).await);
        place.run(1, requesting_approval(&place, 1)).await;
        place
            .store
            .decide(&approval_request(&place, 1).approval_id, &approve(ApprovalScope::Session), "ada", NOW)
            .await
            .unwrap();
        assert!(allowed("tool", &scope.agent_id, &scope.session_id).await);
        for (hash, agent, session) in [
            ("other", scope.agent_id.as_str(), scope.session_id.as_str()),
            ("tool", "other", &scope.session_id),
            ("tool", &scope.agent_id, "other"),
        ] {
            assert!(!allowed(hash, agent, session).await, "{hash} {agent} {session}");
        }
        assert!(!allowed_at("another server", "tool", &scope.agent_id, &scope.session_id).await);
        place.run(2, requesting_approval(&place, 2)).await;
        place
            .store
            .decide(&approval_request(&place, 2).approval_id, &approve(ApprovalScope::Agent), "ada", NOW)
            .await
            .unwrap();
        assert!(allowed("tool", &scope.agent_id, "other").await);
        let rules = place.store.rules().await.unwrap();
        let ours: Vec<_> = rules.iter().filter(|rule| rule.tool_id == tool).collect();
        assert_eq!(ours.len(), 2);
        for rule in ours {
            assert!(place.store.revoke_rule(&rule.rule_id, NOW).await.unwrap());
            assert!(!place.store.revoke_rule(&rule.rule_id, NOW).await.unwrap());
        }
        assert!(!allowed("tool", &scope.agent_id, &scope.session_id).await);
    }
}

/// Stores one run that requests this approval, in the given session.
async fn requested_in(place: &Place, session: &str, request: ApprovalRequest) -> ApprovalId {
    let id = request.approval_id.clone();
    let scope = Scope { session_id: session.to_owned(), ..place.scope() };
    let mut held = place.new_run_of(request.call.0, scope);
    let change = Change { approvals: vec![request], ..Change::default() };
    place.store.commit(&mut held, &change, Durability::Synced, NOW).await.unwrap();
    id
}

#[tokio::test]
async fn a_standing_approval_approves_the_pending_approvals_that_it_covers_and_no_others() {
    for reach in [ApprovalScope::Session, ApprovalScope::Agent] {
        for place in everywhere().await {
            let ask = |number: u32| approval_request(&place, number);
            let mut ids = Vec::new();
            for (session, request) in [
                ("here", ask(1)),
                ("here", ask(2)),
                ("elsewhere", ask(3)),
                ("here", ApprovalRequest { tool_hash: "changed".to_owned(), ..ask(4) }),
                ("here", ApprovalRequest { tool_id: "openclaw:core:other".to_owned(), ..ask(5) }),
                ("here", ApprovalRequest { source_identity: Some("another server".to_owned()), ..ask(6) }),
                ("here", ApprovalRequest { source_identity: None, ..ask(7) }),
                ("here", ApprovalRequest { question: Some(json!({"message": "Where?"})), ..ask(8) }),
                ("here", ApprovalRequest { expires_at: NOW, ..ask(9) }),
            ] {
                ids.push(requested_in(&place, session, request).await);
            }
            // Another agent's call, and one of a run that has ended.
            let stranger = Scope { agent_id: format!("stranger-{}", place.name), ..place.scope() };
            let mut held = place.new_run_of(10, stranger);
            place.store.commit(&mut held, &requesting_approval(&place, 10), Durability::Synced, NOW).await.unwrap();
            let mut over = place.run(11, requesting_approval(&place, 11)).await;
            let end = Change { state: Some(RunState::Aborted), ..Change::default() };
            place.store.commit(&mut over, &end, Durability::Synced, NOW).await.unwrap();

            let recorded = place.store.decide(&ids[0], &approve(reach), "ada", NOW).await.unwrap();
            let covered: Vec<&ApprovalId> = recorded.covered.iter().map(|one| &one.approval_id).collect();
            let expected: Vec<&ApprovalId> =
                if reach == ApprovalScope::Agent { vec![&ids[1], &ids[2]] } else { vec![&ids[1]] };
            assert_eq!(covered, expected, "{reach:?}");
            for one in &recorded.covered {
                let stored = place.store.approval(&one.approval_id).await.unwrap().unwrap();
                assert_eq!((stored.state, &stored), (ApprovalState::Approved, one));
                assert_eq!((one.decided_by.as_deref(), one.edited_input.as_ref()), (Some("ada"), None));
                let again = place.store.decide(&one.approval_id, &approve(ApprovalScope::Once), "bob", NOW).await;
                assert!(matches!(again, Err(DecisionError::NotPending)), "{again:?}");
            }
            let pending = place.store.pending_approvals().await.unwrap();
            let ours = pending.iter().filter(|one| one.approval_id.contains(&place.name)).count();
            assert_eq!(ours, 9 - expected.len(), "{reach:?}");
            assert_eq!(place.store.rules().await.unwrap().iter().filter(|rule| rule.created_by == "ada").count(), 1);
        }
    }
}

#[tokio::test]
async fn a_covered_approval_is_used_once_by_its_own_run() {
    for place in everywhere().await {
        place.run(1, requesting_approval(&place, 1)).await;
        let mut held = place.run(2, requesting_approval(&place, 2)).await;
        let decided = approval_request(&place, 1).approval_id;
        place.store.decide(&decided, &approve(ApprovalScope::Agent), "ada", NOW).await.unwrap();
        let used = || Change { used_approvals: vec![approval_request(&place, 2).approval_id], ..Change::default() };
        place.store.commit(&mut held, &used(), Durability::Synced, NOW).await.unwrap();
        let again = place.store.commit(&mut held.clone(), &used(), Durability::Synced, NOW).await;
        assert!(matches!(again, Err(CommitError::ApprovalGone)), "{again:?}");
    }
}

#[tokio::test]
async fn racing_standing_approvals_and_denials_decide_every_approval_once() {
    for place in everywhere().await {
        for number in 1..=8 {
            place.run(number, requesting_approval(&place, number)).await;
        }
        let racers = (1..=8).flat_map(|number| [(number, true), (number, false)]).map(|(number, approves)| {
            let (store, id) = (place.store.clone(), approval_request(&place, number).approval_id);
            let decision =
                if approves { approve(ApprovalScope::Agent) } else { Decision::Deny { note: String::new() } };
            tokio::spawn(async move { store.decide(&id, &decision, "ada", NOW).await })
        });
        let mut decided = Vec::new();
        for racer in racers.collect::<Vec<_>>() {
            match racer.await.unwrap() {
                Ok(recorded) => decided.extend(recorded.approvals().map(|one| (one.approval_id.clone(), one.state))),
                Err(DecisionError::NotPending) => {}
                Err(error) => panic!("{error}"),
            }
        }
        decided.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(decided.len(), 8, "{decided:?}");
        for (id, state) in decided {
            assert_eq!(place.store.approval(&id).await.unwrap().unwrap().state, state);
        }
    }
}

/// Returns a store in a file, and a connection that can change its rows directly.
async fn file_and_connection() -> (Place, sqlx::AnyConnection) {
    let mut places = everywhere().await;
    let place = places.swap_remove(1);
    let store::Location::File(path) = &place.location else { panic!("{:?}", place.location) };
    let connection = sqlx::AnyConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    (place, connection)
}

async fn is_allowed(place: &Place) -> bool {
    let (scope, tool) = (place.scope(), approval_request(place, 0).tool_id);
    let subject = RuleSubject { tool_id: &tool, tool_hash: "tool", source_identity: "server" };
    place.store.has_standing_approval(subject, &scope.agent_id, &scope.session_id).await.unwrap()
}

#[tokio::test]
async fn a_rule_without_a_source_identity_allows_nothing_and_is_listed_as_not_in_force() {
    let (place, mut connection) = file_and_connection().await;
    place.run(1, requesting_approval(&place, 1)).await;
    place
        .store
        .decide(&approval_request(&place, 1).approval_id, &approve(ApprovalScope::Agent), "ada", NOW)
        .await
        .unwrap();
    assert!(is_allowed(&place).await && place.store.rules().await.unwrap()[0].is_in_force());
    // Like rows from before the column existed.
    sqlx::query("UPDATE rules SET source_identity = NULL").execute(&mut connection).await.unwrap();
    assert!(!is_allowed(&place).await);
    let rules = place.store.rules().await.unwrap();
    assert_eq!((rules.len(), rules[0].is_in_force(), rules[0].revoked_at), (1, false, None));
    // An approval requested before then has no identity either: it approves the call, but creates no rule.
    place.run(2, requesting_approval(&place, 2)).await;
    sqlx::query("UPDATE approvals SET source_identity = NULL").execute(&mut connection).await.unwrap();
    let once = place
        .store
        .decide(&approval_request(&place, 2).approval_id, &approve(ApprovalScope::Agent), "ada", NOW)
        .await
        .unwrap();
    assert_eq!((once.approval.state, place.store.rules().await.unwrap().len()), (ApprovalState::Approved, 1));
}

#[tokio::test]
async fn rules_of_an_agent_are_bounded_and_at_the_limit_a_call_can_be_approved_once() {
    let (place, mut connection) = file_and_connection().await;
    let fill = |number: usize, revoked: &str| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number}) \
             INSERT INTO rules (rule_id, tool_id, tool_hash, source_identity, agent_id, created_at, created_by, revoked_at) \
             SELECT 'r{revoked}_' || i, 't', 'h', 's', '{}', 1, 'ada', {revoked} FROM n",
            place.scope().agent_id
        )
    };
    connection.execute(fill(MAX_STANDING_RULES, "NULL").as_str()).await.unwrap();
    connection.execute(fill(MAX_STANDING_RULES + 100, "7").as_str()).await.unwrap();
    place.run(1, requesting_approval(&place, 1)).await;
    let id = approval_request(&place, 1).approval_id;
    let refused = place.store.decide(&id, &approve(ApprovalScope::Agent), "ada", NOW).await;
    assert!(matches!(refused, Err(DecisionError::TooManyRules)), "{refused:?}");
    assert!(place.store.revoke_rule("rNULL_1", NOW).await.unwrap());
    place.store.decide(&id, &approve(ApprovalScope::Agent), "ada", NOW).await.unwrap();
    assert!(is_allowed(&place).await);
    let rules = place.store.rules().await.unwrap();
    let (revoked, live): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.revoked_at.is_some());
    assert_eq!((live.len(), revoked.len()), (MAX_STANDING_RULES, MAX_STANDING_RULES), "old revoked rules are deleted");
    place.run(2, requesting_approval(&place, 2)).await;
    place
        .store
        .decide(&approval_request(&place, 2).approval_id, &approve(ApprovalScope::Once), "ada", NOW)
        .await
        .unwrap();
}
